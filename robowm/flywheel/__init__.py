"""The whole cycle as data: stages, what they need, what is done already, and the loop that runs the rest."""
