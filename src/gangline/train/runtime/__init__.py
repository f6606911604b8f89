"""Runtime of a rank below the loop: context, process groups, device meshes, initial weights, data files."""
