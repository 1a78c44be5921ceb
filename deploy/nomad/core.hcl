# A client of Nomad in the pool core: control, gateway, metrics. No raw_exec: programs run in a folder of their own, as an ordinary user.
data_dir = "/var/lib/nomad"
disable_update_check = true

client {
  enabled = true
  node_pool = "core"
  # servers = ["10.0.0.1:4647", "10.0.0.2:4647", "10.0.0.3:4647"]

  # Not below the drain of any role in the cluster's file.
  max_kill_timeout = "30m"

  options = {
    # Do not ask the addresses of clouds what this machine is.
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean"
  }

  # The driver exec copies these into the folder of each task. Its default is gigabytes.
  chroot_env = {
    "/usr/local/bin/temper" = "/usr/local/bin/temper"
    "/etc/ssl/certs"        = "/etc/ssl/certs"
    "/etc/resolv.conf"      = "/etc/resolv.conf"
    "/etc/hosts"            = "/etc/hosts"
    "/etc/passwd"           = "/etc/passwd"
  }

  # What outlives an allocation. Its name is that of the cluster.
  host_volume "temper" {
    path = "/var/lib/temper"
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


telemetry {
  prometheus_metrics = true
  publish_allocation_metrics = true
  publish_node_metrics = true
}
