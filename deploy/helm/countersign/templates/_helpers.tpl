{{- define "countersign.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "countersign.selector" -}}
app.kubernetes.io/name: countersign
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "countersign.labels" -}}
app.kubernetes.io/name: countersign
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "countersign.keysSecret" -}}
{{- if .Values.apiKeys.plain }}{{ include "countersign.name" . }}-api-keys{{ else }}{{ .Values.apiKeys.secret }}{{ end -}}
{{- end -}}

{{/* "true" where gateways and engines are pods of their own on the same nodes: a sidecar signs with the GPUs of its node. */}}
{{- define "countersign.sameNode" -}}
{{- if and (eq .Values.backend.mode "service") (ne .Values.gpu.access "none") }}true{{ end -}}
{{- end -}}

{{/* Which nodes a pod may run on, and by which runtime. */}}
{{- define "countersign.placement" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- if and (eq .Values.gpu.access "runtimeClass") .Values.gpu.runtimeClassName }}
runtimeClassName: {{ .Values.gpu.runtimeClassName }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* No root, no capability, nothing to write on: the security context of every container except the two steps that run as root and end. */}}
{{- define "countersign.locked" -}}
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{/* What the schema cannot say: values that contradict each other. */}}
{{- define "countersign.check" -}}
{{- with .Values -}}
{{- if and (eq .backend.mode "url") (not .backend.url) }}{{ fail "backend.url: backend.mode=url needs the engine's address, such as http://engine.models.svc:8000/v1" }}{{ end -}}
{{- if and (ne .backend.mode "url") .backend.url }}{{ fail (printf "backend.url: it is set, and backend.mode=%s would not use it; set backend.mode=url" .backend.mode) }}{{ end -}}
{{- if and (eq .backend.mode "service") (has "127.0.0.1" .backend.args) }}{{ fail "backend.args: backend.mode=service needs an engine that listens on its pod's address: --host 0.0.0.0" }}{{ end -}}
{{- if and (eq .backend.mode "service") (eq .gpu.access "claim") }}{{ fail "gpu.access: a claim belongs to one pod, and backend.mode=service has the engine in another than the sidecar; use runtimeClass or nri" }}{{ end -}}
{{- if and (eq .sidecar.attester "simulated") (ne (toString (index .gateway.env "ALLOW_SIMULATED")) "1") }}{{ fail "sidecar.attester: simulated proves nothing about hardware; a trial says so with gateway.env.ALLOW_SIMULATED: '1'" }}{{ end -}}
{{- if and (ne .sidecar.attester "simulated") (eq .gpu.access "none") }}{{ fail (printf "gpu.access: none leaves the sidecar without a GPU, and sidecar.attester=%s needs one" .sidecar.attester) }}{{ end -}}
{{- if and .readyState.enabled (eq .gpu.access "none") }}{{ fail "readyState.enabled: gpu.access=none leaves no GPU to set ready" }}{{ end -}}
{{- if and .readyState.withoutAttestation (not .readyState.enabled) }}{{ fail "readyState.withoutAttestation: readyState.enabled is false, so nothing would set the GPUs ready" }}{{ end -}}
{{- if and .pool.enabled (not .pool.picker.image) }}{{ fail "pool.picker.image: pool.enabled=true needs the endpoint picker's image, by its digest" }}{{ end -}}
{{- if and .pool.enabled (not .store.enabled) (gt (int .replicas) 1) }}{{ fail "store.enabled: several pods behind a pool find each other's attestations through a store alone; set store.enabled=true" }}{{ end -}}
{{- if and .pool.gateway.name (not .pool.enabled) }}{{ fail "pool.gateway.name: pool.enabled is false, so there is no pool for a route to lead to" }}{{ end -}}
{{- if gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas) }}{{ fail "autoscaling.minReplicas: it is more than autoscaling.maxReplicas" }}{{ end -}}
{{- range $name := list "HOST" "PORT" "METRICS_HOST" "METRICS_PORT" "BACKEND_URL" "SIDECAR_SOCKET" "API_KEYS_FILE" "ATTESTATION_STORE_URL" }}
{{- if hasKey $.Values.gateway.env $name }}{{ fail (printf "gateway.env.%s: the chart sets it itself" $name) }}{{ end -}}
{{- end -}}
{{- range $name := list "ATTESTER" "SIDECAR_SOCKET" "COLLATERAL_DIR" "TSM_ENTRY" }}
{{- if hasKey $.Values.sidecar.env $name }}{{ fail (printf "sidecar.env.%s: the chart sets it itself; the attester is sidecar.attester" $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
