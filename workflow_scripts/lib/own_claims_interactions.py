"""What the study `interactions` says of each claim of its document."""

CHECKS = ()
