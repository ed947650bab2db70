"""Measurements of the program against something simpler, as ratios within one run."""
