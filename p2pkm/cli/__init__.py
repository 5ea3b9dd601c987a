"""The command line: options, commands, printing, doctor."""
