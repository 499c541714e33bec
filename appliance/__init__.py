"""The box: broker and NameServer behaviour, composition, command line."""

from appliance.compiled import install

install()  # before any module of the six packages that may be compiled is imported
