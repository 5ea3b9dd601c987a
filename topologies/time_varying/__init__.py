"""Time-varying graphs, whose active links change from round to round."""
