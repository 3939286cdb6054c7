"""What the study `cpu_optimizations` says of each claim of its document."""

CHECKS = ()
