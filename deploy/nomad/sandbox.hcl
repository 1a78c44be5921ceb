# A client of Nomad in the pool sandbox: programs that language models wrote. The jail of temper gives up its rights itself, which takes them first.
data_dir = "/var/lib/nomad"
disable_update_check = true

client {
  enabled = true
  node_pool = "sandbox"
  # servers = ["10.0.0.1:4647", "10.0.0.2:4647", "10.0.0.3:4647"]

  # Not below the drain of any role in the cluster's file.
  max_kill_timeout = "30m"

  options = {
    # Do not ask the addresses of clouds what this machine is.
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean"
  }
}

acl {
  enabled = true
}

tls {
  http = true
  rpc = true
  ca_file = "/etc/nomad.d/tls/ca.pem"
  cert_file = "/etc/nomad.d/tls/cert.pem"
  key_file = "/etc/nomad.d/tls/key.pem"
  verify_server_hostname = true
  verify_https_client = true
}

plugin "raw_exec" {
  config {
    enabled = true
  }
}

telemetry {
  prometheus_metrics = true
  publish_allocation_metrics = true
  publish_node_metrics = true
}
