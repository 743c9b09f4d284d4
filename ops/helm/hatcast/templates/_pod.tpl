{{/*
A pod of the release. A dict:
  root, role       worker, display or feeds: whose hatcast.toml and login
  component, feed  labels of its kind
  args             of `hatcast`
  resources, grace of the container, seconds
  ports            name to number; with "metrics" it has probes
  ready            path and port that say whether it is ready; empty: it is when it is alive
  started          path on the port "metrics" that ends its start; by default /livez
  drainSeconds     between its removal from Services and SIGTERM
  env, volumes, mounts   more of them, as lists
  placement        nodeSelector, tolerations, affinity
  restart, hostname      of the pod
*/}}
{{- define "hatcast.pod" -}}
{{- $v := .root.Values -}}
metadata:
  labels:
    {{- include "hatcast.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with .feed }}
    hatcast/feed: {{ . }}
    {{- end }}
  annotations:
    # Another configuration is another pod.
    checksum/config: {{ printf "%s%s" (include "hatcast.toml" (dict "root" .root "role" .role)) (toJson $v.files) | sha256sum }}
    {{- if and $v.redis.url (eq .role "worker") }}
    # It has a password in it: scrypt, salted with the release, so that who may read pods alone learns and compares nothing.
    checksum/redis: {{ derivePassword 1 "long" $v.redis.url (printf "%s/%s" .root.Release.Namespace .root.Release.Name) "redis" | sha256sum }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .hostname }}
  hostname: {{ . }}
  {{- end }}
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .grace }}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - {name: {{ . | quote }}}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with .placement.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .placement.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .placement.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .component "worker" "display" }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "hatcast.selector" $.root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
    {{- end }}
  {{- end }}
  containers:
    - name: hatcast
      image: {{ include "hatcast.image" .root | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: {{- toYaml .args | nindent 8 }}
      {{- $env := printf "%s%s" (include "hatcast.env" (dict "root" .root "role" .role)) (.env | empty | ternary "" (toYaml .env | nindent 0)) }}
      {{- with trim $env }}
      env: {{- . | nindent 8 }}
      {{- end }}
      {{- with .ports }}
      ports:
        {{- range $name, $port := . }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      {{- end }}
      {{- if hasKey .ports "metrics" }}
      # It is alive while its event loop turns. What it waits for (Redis, Kafka, a source) is no reason to restart it.
      startupProbe:
        httpGet: {path: {{ default "/livez" .started }}, port: metrics}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 300
      livenessProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      {{- with .ready }}
      readinessProbe:
        httpGet: {path: {{ .path }}, port: {{ .port }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 3
      {{- end }}
      {{- end }}
      {{- if .drainSeconds }}
      lifecycle:    # until no proxy sends it anything new
        preStop: {exec: {command: [python, -c, {{ printf "import time; time.sleep(%d)" (int .drainSeconds) | quote }}]}}
      {{- end }}
      resources: {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        {{- include "hatcast.mounts" (dict "root" .root "role" .role) | nindent 8 }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "hatcast.volumes" (dict "root" .root "role" .role) | nindent 4 }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The pod of a worker, or of the job that drains. */}}
{{- define "hatcast.worker" -}}
{{- with .Values.worker -}}
{{- $args := concat (list "worker" "--config=/etc/hatcast/hatcast.toml" "--metrics-listen=0.0.0.0:9464") .extraArgs (ternary (list "--drain") list .drain) -}}
{{- include "hatcast.pod" (dict "root" $ "role" "worker" "component" "worker" "args" $args "resources" .resources "grace" .terminationGracePeriodSeconds "ports" (dict "metrics" 9464) "ready" (dict "path" "/readyz" "port" "metrics") "placement" . "volumes" .extraVolumes "mounts" .extraVolumeMounts "restart" (ternary "OnFailure" "" .drain)) -}}
{{- end -}}
{{- end -}}
