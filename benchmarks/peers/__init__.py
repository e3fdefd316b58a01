"""What ours is compared with: programs that benchmarks start, and models that they measure."""
