"""What happens to messages between a method and the wire: faults, Byzantine devices, suppression, rejection."""
