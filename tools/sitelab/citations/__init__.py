"""Citations on a page: what each means at the pin, its permalink and its card."""
