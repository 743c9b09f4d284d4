{{/* hatcast.toml of a role, and what its pod needs to log in. */}}

{{/*
How a role logs in at Kafka, as JSON: username, secret and its keys. A dict: root, role (worker, display or feeds).
*/}}
{{- define "hatcast.user" -}}
{{- $v := .root.Values -}}
{{- if $v.strimzi.enabled -}}
{{- $name := printf "%s-%s" (include "hatcast.fullname" .root) .role -}}
{{- toJson (dict "username" $name "secret" $name "passwordKey" "password" "certKey" "user.crt" "keyKey" "user.key") -}}
{{- else -}}
{{- $own := get $v.kafka.users .role -}}
{{- toJson (merge (dict) (ternary $own dict (not (not (get $own "secret")))) $v.kafka.users.worker) -}}
{{- end -}}
{{- end -}}

{{/* How Kafka is reached, as JSON: tls, certificates, mechanism, caSecret. */}}
{{- define "hatcast.kafka" -}}
{{- $v := .Values -}}
{{- if $v.strimzi.enabled -}}
{{- $scram := eq $v.strimzi.authentication "scram-sha-512" -}}
{{- $ca := default (printf "%s-cluster-ca-cert" $v.strimzi.cluster) $v.kafka.tls.caSecret.name -}}
{{- toJson (dict "tls" true "certificates" (not $scram) "mechanism" ($scram | ternary "SCRAM-SHA-512" "") "caSecret" $ca) -}}
{{- else -}}
{{- toJson (dict "tls" $v.kafka.tls.enabled "certificates" $v.kafka.tls.clientCertificates "mechanism" $v.kafka.sasl.mechanism "caSecret" ($v.kafka.tls.enabled | ternary $v.kafka.tls.caSecret.name "")) -}}
{{- end -}}
{{- end -}}

{{/*
hatcast.toml of a role: that of the values, with what the chart knows of Kafka and Redis and without the rest that it says
about them. No secret is in it. A dict: root, role.
*/}}
{{- define "hatcast.toml" -}}
{{- $v := .root.Values -}}
{{- $toml := fromToml $v.config -}}
{{- $reach := include "hatcast.kafka" .root | fromJson -}}
{{- $user := include "hatcast.user" . | fromJson -}}
{{- $kafka := pick (default dict $toml.kafka) "partitions" -}}
{{- $_ := set $kafka "bootstrap_servers" (include "hatcast.bootstrap" .root) -}}
{{- $protocol := ternary "SSL" "PLAINTEXT" $reach.tls -}}
{{- $_ := set $kafka "security_protocol" (ternary $protocol (printf "SASL_%s" $protocol) (empty $reach.mechanism)) -}}
{{- if $reach.mechanism -}}
{{- $_ := set $kafka "sasl_mechanism" $reach.mechanism -}}
{{- $_ := set $kafka "sasl_plain_username" $user.username -}}
{{- end -}}
{{- if $reach.caSecret -}}
{{- $_ := set $kafka "ssl_cafile" "/etc/hatcast-kafka-ca/ca.crt" -}}
{{- end -}}
{{- if $reach.tls -}}
{{- $_ := set $kafka "ssl_check_hostname" $v.kafka.tls.checkHostname -}}
{{- end -}}
{{- if $reach.certificates -}}
{{- $_ := set $kafka "ssl_certfile" "/etc/hatcast-kafka-user/user.crt" -}}
{{- $_ := set $kafka "ssl_keyfile" "/etc/hatcast-kafka-user/user.key" -}}
{{- end -}}
{{- $_ := set $toml "kafka" $kafka -}}
{{- $_ := unset $toml "redis" -}}
{{- /* What another role alone reads is left out: a new title of the map restarts no worker. */ -}}
{{- if ne .role "display" -}}{{- $_ := unset $toml "display" -}}{{- end -}}
{{- if ne .role "worker" -}}{{- $_ := unset $toml "worker" -}}{{- end -}}
{{- if eq .role "worker" -}}
{{- $redis := dict -}}
{{- with $v.redis.username -}}{{- $_ := set $redis "username" . -}}{{- end -}}
{{- if $v.redis.caSecret.name -}}{{- $_ := set $redis "ssl_ca_certs" "/etc/hatcast-redis-ca/ca.crt" -}}{{- end -}}
{{- if $v.redis.certificateSecret.name -}}
{{- $_ := set $redis "ssl_certfile" "/etc/hatcast-redis-user/tls.crt" -}}
{{- $_ := set $redis "ssl_keyfile" "/etc/hatcast-redis-user/tls.key" -}}
{{- end -}}
{{- if $redis -}}{{- $_ := set $toml "redis" $redis -}}{{- end -}}
{{- end -}}
{{- if $toml.worker -}}
{{- $_ := set $toml "worker" (omit $toml.worker "listen" "user_key_file") -}}
{{- end -}}
{{- toToml $toml -}}
{{- end -}}

{{/* Variables with the secrets of a role. A dict: root, role. */}}
{{- define "hatcast.env" -}}
{{- $v := .root.Values -}}
{{- $reach := include "hatcast.kafka" .root | fromJson -}}
{{- $user := include "hatcast.user" . | fromJson -}}
{{- if $reach.mechanism }}
- name: HATCAST_KAFKA_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $user.secret | quote }}, key: {{ $user.passwordKey | quote }}}}
{{- end }}
{{- if eq .role "worker" }}
- name: HATCAST_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ default (printf "%s-redis" (include "hatcast.fullname" .root)) $v.redis.existingSecret.name | quote }}
      key: {{ ternary $v.redis.existingSecret.key "url" (not (not $v.redis.existingSecret.name)) | quote }}
{{- with $v.redis.passwordSecret }}
{{- if .name }}
- name: HATCAST_REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- with $v.worker.userKeySecret }}
{{- if .name }}
- name: HATCAST_USER_KEY
  valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of a role: hatcast.toml with the files beside it, certificates, /tmp. A dict: root, role. */}}
{{- define "hatcast.volumes" -}}
{{- $v := .root.Values -}}
{{- $reach := include "hatcast.kafka" .root | fromJson -}}
{{- $user := include "hatcast.user" . | fromJson -}}
- name: config
  configMap:
    name: {{ include "hatcast.fullname" .root }}
    items:
      - {key: {{ .role }}.toml, path: hatcast.toml}
      {{- range $name, $_ := $v.files }}
      - {key: {{ $name | quote }}, path: {{ $name | quote }}}
      {{- end }}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- if $reach.caSecret }}
- name: kafka-ca
  secret: {secretName: {{ $reach.caSecret | quote }}, defaultMode: 0440, items: [{key: {{ $v.kafka.tls.caSecret.key | quote }}, path: ca.crt}]}
{{- end }}
{{- if $reach.certificates }}
- name: kafka-user
  secret:
    secretName: {{ $user.secret | quote }}
    defaultMode: 0440
    items: [{key: {{ $user.certKey | quote }}, path: user.crt}, {key: {{ $user.keyKey | quote }}, path: user.key}]
{{- end }}
{{- if eq .role "worker" }}
{{- with $v.redis.caSecret }}
{{- if .name }}
- name: redis-ca
  secret: {secretName: {{ .name | quote }}, defaultMode: 0440, items: [{key: {{ .key | quote }}, path: ca.crt}]}
{{- end }}
{{- end }}
{{- with $v.redis.certificateSecret }}
{{- if .name }}
- name: redis-user
  secret:
    secretName: {{ .name | quote }}
    defaultMode: 0440
    items: [{key: {{ .certKey | quote }}, path: tls.crt}, {key: {{ .keyKey | quote }}, path: tls.key}]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where they are mounted: each volume but config and tmp at /etc/hatcast-NAME. A dict: root, role. */}}
{{- define "hatcast.mounts" -}}
- {name: config, mountPath: /etc/hatcast, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- range include "hatcast.volumes" . | fromYamlArray }}
{{- if not (has .name (list "config" "tmp")) }}
- {name: {{ .name }}, mountPath: /etc/hatcast-{{ .name }}, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}
