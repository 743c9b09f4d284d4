{{/* Names and labels. */}}

{{- define "hatcast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "hatcast.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "hatcast.selector" . }}
{{- end -}}

{{/* Labels by which selectors find the pods of the release. */}}
{{- define "hatcast.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hatcast.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the topics, as JSON: those of hatcast.toml, else the defaults with the prefix. Without devices three are empty. */}}
{{- define "hatcast.topics" -}}
{{- $given := default dict (fromToml .Values.config).topics -}}
{{- $prefix := default "" $given.prefix -}}
{{- $topics := dict -}}
{{- range $key, $name := dict "telemetry" "telemetry" "means" "hats.means" "queries" "hats.queries" "budget" "hats.budget" "estimates" "hats.estimates" "running" "hats.running" "dead_letters" "hats.dead-letters" "reports" "reports" "clusters" "hats.clusters" "cluster_answers" "cluster-answers" -}}
{{- $_ := set $topics $key (default (printf "%s%s" $prefix $name) (get $given $key)) -}}
{{- end -}}
{{- $_ := set $topics "registry" (printf "%s.hatcast" $topics.telemetry) -}}
{{- toJson $topics -}}
{{- end -}}

{{/* The consumer group of the workers, to which they commit the offset of each checkpoint. */}}
{{- define "hatcast.group" -}}
{{- printf "hatcast-%s" (fromToml .Values.config).policy.name -}}
{{- end -}}

{{/* Partitions of telemetry when hatcast or the chart makes it. */}}
{{- define "hatcast.partitions" -}}
{{- get (default dict (fromToml .Values.config).kafka) "partitions" | default 8 | int -}}
{{- end -}}

{{- define "hatcast.bootstrap" -}}
{{- if .Values.kafka.bootstrapServers -}}
{{- .Values.kafka.bootstrapServers -}}
{{- else -}}
{{- printf "%s-kafka-bootstrap.%s.svc:%d" .Values.strimzi.cluster (default .Release.Namespace .Values.strimzi.namespace) (int .Values.strimzi.port) -}}
{{- end -}}
{{- end -}}

{{/* A duration of hatcast.toml, such as 2m, in milliseconds. */}}
{{- define "hatcast.milliseconds" -}}
{{- if not (regexMatch "^[0-9]{1,12}(ms|s|m|h|d)$" .) -}}
{{- fail (printf "config: %q is not a duration; write an integer with ms, s, m, h or d" .) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- mul (int64 $number) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000) (trimPrefix $number .)) -}}
{{- end -}}

{{/* The name of the job that drains. The pod of a job does not change, so another pod is another job. */}}
{{- define "hatcast.drain" -}}
{{- printf "%s-drain-%s" (include "hatcast.fullname" .) (include "hatcast.worker" . | sha256sum | trunc 8) -}}
{{- end -}}
