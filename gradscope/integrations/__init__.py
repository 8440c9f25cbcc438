"""Where gradscope meets other tools; each integration loads what it needs when it is used."""
