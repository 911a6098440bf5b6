"""The only folder that knows juliacall; nothing here imports it outside a function."""
