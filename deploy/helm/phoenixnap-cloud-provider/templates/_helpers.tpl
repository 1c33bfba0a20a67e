{{- /*
Brings the values into the form that all templates rely on, in place: nothing is null, and every value is there. Helm removes
a default for which the user gives null, and so does this where nothing is a meaning; anything else gets its default.
*/}}
{{- define "phoenixnap.normalize" }}
{{- include "phoenixnap.prune" (omit .Values "global") }}
{{- include "phoenixnap.fill" (dict "values" .Values "defaults" (include "phoenixnap.defaults" . | fromYaml)) }}
{{- range $name, $value := .Values.cloudConfig }}
{{- if and (kindIs "string" $value) (empty $value) }}
{{- $_ := unset $.Values.cloudConfig $name }}
{{- end }}
{{- end }}
{{- end }}

{{- define "phoenixnap.prune" }}
{{- range $name, $value := . }}
{{- if kindIs "map" $value }}
{{- range $below, $each := $value }}
{{- if kindIs "invalid" $each }}
{{- $_ := unset $value $below }}
{{- end }}
{{- end }}
{{- include "phoenixnap.prune" $value }}
{{- end }}
{{- end }}
{{- end }}

{{- define "phoenixnap.fill" }}
{{- range $name, $default := .defaults }}
{{- $value := index $.values $name }}
{{- if or (kindIs "invalid" $value) (and (kindIs "string" $value) (empty $value)) }}
{{- $_ := set $.values $name $default }}
{{- else if and (kindIs "map" $default) $default }}
{{- include "phoenixnap.fill" (dict "values" $value "defaults" $default) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What takes the place of null, and of an empty text. */}}
{{- define "phoenixnap.defaults" }}
distribution: kubeadm
announcer: kube-vip
manageVLAN: false
cloudConfigSecret: pnap-cloud-config
cloudConfig: {}
imagePullSecrets: []
policies: {enabled: true, denyExternalIPs: false, publishers: []}
controller:
  image: {repository: phoenixnap/phoenixnap-cloud-controller-manager, tag: "", digest: "", pullPolicy: ""}
  replicas: 2
  port: 10258
  extraArgs: []
  env: []
  trustedCA: {configMap: "", secret: ""}
  nodeSelector: {}
  tolerations: []
  affinity: {}
  priorityClassName: ""
  podLabels: {}
  podAnnotations: {}
  resources: {}
agent:
  enabled: true
  image: {repository: phoenixnap/phoenixnap-agent, tag: "", digest: "", pullPolicy: ""}
  extraArgs: []
  env: []
  metrics: loopback
  nodeSelector: {}
  tolerations: []
  affinity: {}
  priorityClassName: ""
  podLabels: {}
  podAnnotations: {}
  resources: {}
monitoring:
  podMonitor: {enabled: false, labels: {}}
  prometheusRule: {enabled: false, labels: {}}
  dashboard: {enabled: false}
kubeVIP:
  enabled: false
  interface: ""
  image: {repository: ghcr.io/kube-vip/kube-vip, tag: "", digest: "", pullPolicy: ""}
  podLabels: {}
  podAnnotations: {}
  resources: {}
{{- end }}

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
