"""Seeding: what each device starts from, as stages on the message layer."""
