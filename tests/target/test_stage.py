"""What is said while inputs are looked for."""

from gradscope.target import load
from gradscope.target.stage import listening

NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(7, 2)

        def forward(self, x):
            assert x.shape[1] == 5
            return self.fc(x.mean(1))
"""


def test_the_search_for_inputs_says_how_far_it_is(write):
    said = []
    with listening(said.append):
        load(write(NET))
    assert said[0] == "looking for inputs, 0 tried"
    assert "looking for inputs, 1 tried" in said
    before = len(said)
    load("user_model.py")
    assert len(said) == before
