{{/* What values.schema.json cannot say: one line with the value and what to do. Each template that makes pods asks it. */}}
{{- define "hatcast.check" -}}
{{- $v := .Values -}}
{{- if not $v.config -}}
{{- fail "config: is empty; give the text of hatcast.toml, such as --set-file config=hatcast.toml (hatcast init writes one)" -}}
{{- end -}}
{{- $toml := fromToml $v.config -}}
{{- if get $toml "Error" -}}
{{- fail (printf "config: is not TOML: %s" (get $toml "Error")) -}}
{{- end -}}
{{- if not (get (default dict $toml.policy) "name") -}}
{{- fail "config: has no policy.name; give the text of a whole hatcast.toml" -}}
{{- end -}}
{{- if not (or $v.kafka.bootstrapServers $v.strimzi.enabled) -}}
{{- fail "kafka.bootstrapServers: is empty; write host:port, or use a Kafka of Strimzi's by strimzi.enabled" -}}
{{- end -}}
{{- if and $v.strimzi.enabled (not $v.strimzi.cluster) -}}
{{- fail "strimzi.cluster: is empty; write the name of the Kafka resource" -}}
{{- end -}}
{{- if and $v.strimzi.enabled (not (has $v.strimzi.namespace (list "" .Release.Namespace))) (not $v.kafka.tls.caSecret.name) -}}
{{- fail (printf "kafka.tls.caSecret.name: is empty; Strimzi's authority is a Secret of namespace %s, which pods of %s do not read: copy it and name the copy" $v.strimzi.namespace .Release.Namespace) -}}
{{- end -}}
{{- if and $v.redis.url $v.redis.existingSecret.name -}}
{{- fail "redis.url: stands beside redis.existingSecret.name; give one of them" -}}
{{- end -}}
{{- if not (or $v.redis.url $v.redis.existingSecret.name) -}}
{{- fail "redis.existingSecret.name: is empty; name a Secret with the URL of Redis, or give redis.url" -}}
{{- end -}}
{{- if and (or $v.kafka.sasl.mechanism $v.kafka.tls.clientCertificates) (not $v.strimzi.enabled) (not $v.kafka.users.worker.secret) -}}
{{- fail "kafka.users.worker.secret: is empty; name the Secret with the password or the certificate" -}}
{{- end -}}
{{- if and $v.kafka.sasl.mechanism (not $v.strimzi.enabled) (not $v.kafka.users.worker.username) -}}
{{- fail "kafka.users.worker.username: is empty; write the user's name" -}}
{{- end -}}
{{- if and $v.kafka.tls.clientCertificates (not $v.kafka.tls.enabled) -}}
{{- fail "kafka.tls.clientCertificates: needs kafka.tls.enabled" -}}
{{- end -}}
{{- with $v.display.ingress -}}
{{- if and .enabled (not .host) -}}
{{- fail "display.ingress.host: is empty; write the map's host name" -}}
{{- end -}}
{{- if and .enabled (not .tlsSecret) (not .insecure) -}}
{{- fail "display.ingress.tlsSecret: is empty; name a Secret with the certificate, or set display.ingress.insecure" -}}
{{- end -}}
{{- end -}}
{{- if and $v.feeds (ne (default "jsonl" (get (default dict $toml.topics) "telemetry_format")) "jsonl") -}}
{{- fail "feeds: send jsonl, and topics.telemetry_format of config is another format; leave it out there" -}}
{{- end -}}
{{- if and $v.worker.drain $v.feeds -}}
{{- fail "worker.drain: ends when no feed sends; write feeds: [] until the job has ended" -}}
{{- end -}}
{{- range $v.worker.extraArgs -}}
{{- if regexMatch "^--(config|metrics-listen|drain)(=|$)" . -}}
{{- fail (printf "worker.extraArgs: %s is set by the chart (--drain by worker.drain); leave it out" .) -}}
{{- end -}}
{{- end -}}
{{- range $v.display.extraArgs -}}
{{- if regexMatch "^--(config|metrics-listen|host|port)(=|$)" . -}}
{{- fail (printf "display.extraArgs: %s is set by the chart; leave it out" .) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $feed := $v.feeds -}}
{{- range .args -}}
{{- if regexMatch "^--(config|metrics-listen|for)(=|$)" . -}}
{{- fail (printf "feeds: %s of %s is set by the chart, or would end it; leave it out" . $feed.name) -}}
{{- end -}}
{{- end -}}
{{- if not (has (first .args) (list "amqp" "gtfs-rt" "mqtt" "siri")) -}}
{{- fail (printf "feeds: args of %s begin with %s; write amqp, gtfs-rt, mqtt or siri (replay and synthetic need Redis, which feeds here do not reach)" .name (first .args)) -}}
{{- end -}}
{{- if has .name $names -}}
{{- fail (printf "feeds: two are named %s; give each its own name" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
