"""Names that try to be more than names."""

NAMES = [
    "<script>window.broken = 1</script>",
    '"><img src=x onerror="window.broken = 1">',
    "'+alert(1)+'",
    '=HYPERLINK("http://evil.example")',
    "{{ 7 * 7 }}{% raw %}",
    "</style><script>window.broken = 1</script>",
    "../../../../etc/passwd",
    "javascript:window.broken=1",
    "a|b`c`",
]
