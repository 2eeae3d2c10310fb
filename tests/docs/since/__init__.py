"""The pages "Since the pin", which list the sentences that newer releases made false."""
