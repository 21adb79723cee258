"""Training runs: `fit`, the folder of a run with its checkpoints, and lists of jobs for another machine."""
