"""What happened: recorded episodes, success of policies, fidelity of world models, imagination against the simulator."""
