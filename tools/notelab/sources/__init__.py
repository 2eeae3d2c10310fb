"""Where cited text comes from: content-addressed, whoever delivers it."""
