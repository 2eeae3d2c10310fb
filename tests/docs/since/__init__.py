"""The pages that say what in this workbook newer releases made false, and what they are made of."""
