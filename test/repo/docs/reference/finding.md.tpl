<!-- Written by `make docs` from the declarations of the checks; change those. -->
# {{.ID}}: {{.Title}}

| | |
|---|---|
| group | {{group .ID}} |
| severity | {{.Impact}} |
{{if .Wire -}}
| evidence | answers of other machines; one bad sample proves nothing, so a second must confirm it |
{{else -}}
| evidence | the node's own kernel and what the controller published; one sample is enough |
{{end -}}
{{if .DependsOn -}}
| evaluated when these pass | {{range $i, $id := .DependsOn}}{{if $i}}, {{end}}{{link $id ""}}{{end}} |
{{end -}}
{{if .Reasons -}}
| reasons | {{codes .Reasons}} |
{{end}}
## Meaning

{{.Meaning}}
{{if .Causes}}
## Likely causes

{{range .Causes}}- {{.}}
{{end}}{{end}}{{if .Remedy}}
## How to fix

{{.Remedy}}
{{end}}{{with .Fixes}}
Here for `{{$.Fixed}}`, with sample values (`diagnose` fills in those of the node):
{{$last := ""}}{{range .}}{{if ne .Tool $last}}
### {{.Tool}}
{{$last = .Tool}}{{end}}
{{steps .}}{{end}}{{end}}{{if .Examples}}
## Example output
{{range .Examples}}
`{{.Reason}}`:

```text
{{output .}}```
{{end}}{{end}}
[All findings](../findings.md)
