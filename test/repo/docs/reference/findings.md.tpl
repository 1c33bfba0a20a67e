<!-- Written by `make docs` from the declarations of the checks; change those. -->
# Findings

What `phoenixnap-agent diagnose` prints, what the conditions `phoenixnap.com/VLANReady` and `phoenixnap.com/AnnouncementHealthy` are made of, and the
label `id` of the metric `phoenixnap_agent_check`. Each finding has a page with its meaning, likely causes and fixes; `phoenixnap-agent diagnose explain PN301`
prints the same. On a node, `diagnose` fills that node's own names and addresses into the fixes; see
[a broken VLAN](../guides/broken-vlan.md).

A check that depends on a failed check is skipped, and listed below that check. A failure of severity error turns the condition False; a warning does not. The number
of a finding never changes its meaning.

| outcome | meaning | exit code |
|---|---|---|
| OK, SKIP | healthy, not applicable | 0 |
| WARN | worth a look; traffic may flow | 0, with `--strict` 1 |
| FAIL | the node cannot carry traffic of the public network as it is | 1 |
| UNKNOWN | could not be determined | 3 |
{{$group := ""}}{{range .}}{{if ne (group .ID) $group}}{{$group = group .ID}}
## {{$group}}

| finding | what it checks | severity | reasons |
|---|---|---|---|
{{end}}| {{link .ID "findings/"}} | {{.Title}} | {{.Severity}} | {{codes .Reasons}} |
{{end}}