{{- /* The name of an image: .image is the value, .tag what stands for an empty tag. */}}
{{- define "phoenixnap.image" }}
{{- .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end }}
{{- end }}

{{- /* Environment variables of the user: .env is the list, .value the name of the value, .own are the names that the chart sets. */}}
{{- define "phoenixnap.env" }}
{{- $seen := list }}
{{- range .env }}
{{- if has .name $.own }}
{{- fail (printf "%s sets %s, which the chart sets itself: remove it from %s" $.value .name $.value) }}
{{- end }}
{{- if has .name $seen }}
{{- fail (printf "%s sets %s twice: keep one of them" $.value .name) }}
{{- end }}
{{- $seen = append $seen .name }}
{{- end }}
{{- with .env }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels of the pods: .labels is the value, .value its name. The label by which pods are selected stays what it is. */}}
{{- define "phoenixnap.podLabels" }}
{{- if hasKey .labels "app.kubernetes.io/name" }}
{{- fail (printf "%s sets app.kubernetes.io/name, by which the pods are selected: remove it from %s" .value .value) }}
{{- end }}
{{- with .labels }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /* The objects of a copied manifest, each with more labels: .text is the manifest, .labels are the labels. */}}
{{- define "phoenixnap.labelled" }}
{{- range splitList "\n---\n" .text }}
{{- $object := fromYaml . }}
{{- $_ := set $object.metadata "labels" (merge (dict) $.labels ($object.metadata.labels | default dict)) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
