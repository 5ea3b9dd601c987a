"""Operations on messages between method and network: suppression, noise, integers, Byzantine devices, faults."""
