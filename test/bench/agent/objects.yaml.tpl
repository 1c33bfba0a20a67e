{{- /* The objects of the cluster, as kubelet, controller, agent and kube-vip leave them. */ -}}
{{define "node" -}}
metadata:
  name: {{.Name}}
  labels:
    kubernetes.io/hostname: {{.Name}}
    kubernetes.io/os: linux
    kubernetes.io/arch: amd64
    phoenixnap.com/vlan-ready: "true"
spec:
  podCIDR: {{.Pods}}
status:
  addresses:
  - {type: InternalIP, address: {{.Private}}}
  - {type: Hostname, address: {{.Name}}}
  capacity: {cpu: "32", memory: 256Gi}
  conditions:
{{- range $type, $status := .Conditions}}
  - type: {{$type}}
    status: "{{$status}}"
    reason: Kubelet
    message: the kubelet says so
    lastHeartbeatTime: {{$.Now}}
    lastTransitionTime: {{$.Now}}
{{- end}}
  images: # the kubelet's default, --node-status-max-images
{{- range 50}}
  - names:
    - {{printf "registry.example.com/team-%02d/application@sha256:%064x" . .}}
    - {{printf "registry.example.com/team-%02d/application:v1.%d.0" . .}}
    sizeBytes: 104857600
{{- end}}
{{end}}

{{define "service" -}}
metadata:
  name: {{.Name}}
  annotations:
    kube-vip.io/loadbalancerIPs: {{.Address}}
    phoenixnap.com/ip-address: {{.Address}}
    kube-vip.io/vipHost: {{.Announcer}}
    kube-vip.io/serviceInterface: {{.Interface}}
spec:
  type: LoadBalancer
  loadBalancerIP: {{.Address}}
  selector: {app: {{.Name}}}
  ports:
  - {name: http, port: 80}
  - {name: https, port: 443}
status:
  loadBalancer:
    ingress:
    - {ip: {{.Address}}, ipMode: VIP}
{{end}}

{{define "lease" -}}
metadata:
  name: kubevip-{{.Name}}
spec:
  holderIdentity: {{.Announcer}}
  leaseDurationSeconds: 86400 # nothing renews it, so it must outlast the measurement
  acquireTime: {{.Now}}
  renewTime: {{.Now}}
{{end}}
