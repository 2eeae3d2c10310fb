"""The pages "Since the pin": which sentences newer releases of the sources made false."""
