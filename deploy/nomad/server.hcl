# A server of Nomad. Three of them, or five, on machines of their own.
data_dir = "/var/lib/nomad"
disable_update_check = true

server {
  enabled = true
  bootstrap_expect = 3
  # server_join { retry_join = ["10.0.0.1", "10.0.0.2", "10.0.0.3"] }
  default_scheduler_config {
    preemption_config {
      # Trainers are not evicted by Nomad: it would take one member of a gang.
      batch_scheduler_enabled = false
      service_scheduler_enabled = true
      system_scheduler_enabled = true
    }
  }
}

# Nobody does anything without a token. `nomad acl bootstrap` makes the first one.
acl {
  enabled = true
}

# `nomad tls ca create` and `nomad tls cert create -server` make these.
tls {
  http = true
  rpc = true
  ca_file = "/etc/nomad.d/tls/ca.pem"
  cert_file = "/etc/nomad.d/tls/cert.pem"
  key_file = "/etc/nomad.d/tls/key.pem"
  verify_server_hostname = true
  verify_https_client = true
}

telemetry {
  prometheus_metrics = true
  publish_allocation_metrics = true
  publish_node_metrics = true
}
