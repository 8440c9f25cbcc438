"""The arguments that a user's class is built with: given, or told by the file it stands in and by what lies beside."""
