{{/* The engine's container, in the gateway's pod or in one of its own. */}}
{{- define "countersign.backend" -}}
{{- $service := eq .Values.backend.mode "service" -}}
{{- $probe := $service | ternary (dict "httpGet" (dict "path" .Values.backend.healthPath "port" "http")) (dict "exec" (dict "command" .Values.backend.healthCommand)) -}}
- name: backend
  image: {{ .Values.backend.image }}
  {{- with .Values.backend.command }}
  command: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.backend.args }}
  args: {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
    {{- with .Values.backend.model }}
    - { name: MODEL, value: {{ . | quote }} }
    {{- end }}
    {{- with .Values.backend.modelRevision }}
    - { name: MODEL_REVISION, value: {{ . | quote }} }
    {{- end }}
    {{- range $key, $value := .Values.backend.env }}
    - { name: {{ $key }}, value: {{ $value | toString | quote }} }
    {{- end }}
  {{- if $service }}
  ports:
    - { name: http, containerPort: {{ .Values.backend.port }} }
  {{- end }}
  startupProbe:
    {{- toYaml $probe | nindent 4 }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: {{ div (add (int .Values.backend.startSeconds) 9) 10 }}
  {{- if $service }}
  readinessProbe:
    {{- toYaml $probe | nindent 4 }}
    periodSeconds: 5
    timeoutSeconds: 5
  {{- end }}
  livenessProbe:
    {{- toYaml $probe | nindent 4 }}
    periodSeconds: 20
    timeoutSeconds: 5
    failureThreshold: 3
  securityContext:
    runAsUser: {{ .Values.backend.user }}
    {{- include "countersign.locked" . | nindent 4 }}
  resources:
    requests: {{- toYaml .Values.backend.resources.requests | nindent 6 }}
    limits:
      {{- toYaml .Values.backend.resources.limits | nindent 6 }}
      {{- if has .Values.gpu.access (list "runtimeClass" "nri") }}
      nvidia.com/gpu: {{ .Values.gpu.count }}
      {{- end }}
    {{- if eq .Values.gpu.access "claim" }}
    claims: [{ name: gpu }]
    {{- end }}
  volumeMounts:
    {{- if .Values.backend.modelsClaim }}
    - { name: models, mountPath: /models, readOnly: true }
    {{- end }}
    - { name: backend-tmp, mountPath: /tmp }
    {{- with .Values.backend.home }}
    - { name: backend-home, mountPath: {{ . }} }
    {{- end }}
    {{- if .Values.backend.shmSize }}
    - { name: shm, mountPath: /dev/shm }
    {{- end }}
{{- end -}}

{{- define "countersign.backendVolumes" -}}
{{- with .Values.backend.modelsClaim }}
- { name: models, persistentVolumeClaim: { claimName: {{ . }}, readOnly: true } }
{{- end }}
- { name: backend-tmp, emptyDir: { sizeLimit: 16Gi } }
{{- if .Values.backend.home }}
# Kernels that it compiled at its start.
- { name: backend-home, emptyDir: { sizeLimit: 16Gi } }
{{- end }}
{{- with .Values.backend.shmSize }}
- { name: shm, emptyDir: { medium: Memory, sizeLimit: {{ . }} } }
{{- end }}
{{- end -}}
