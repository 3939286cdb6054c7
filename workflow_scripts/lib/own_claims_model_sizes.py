"""What the study `model_sizes` says of each claim of its document."""

CHECKS = ()
