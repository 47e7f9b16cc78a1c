"""A small sorting office for parcels."""
