# Server and client in one agent, for deploy/single.cluster.yaml. It listens on the loopback
# address alone; set acl { enabled = true } where other people have accounts on the machine.
data_dir = "/var/lib/nomad"
bind_addr = "127.0.0.1"
disable_update_check = true

# Nomad refuses to tell others of a loopback address unless it is said so.
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}

server {
  enabled = true
  bootstrap_expect = 1
}

client {
  enabled = true
  servers = ["127.0.0.1:4647"]
  network_interface = "lo"
  max_kill_timeout = "30m"
  options = {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
  }
}

plugin "raw_exec" {
  config {
    enabled = true
  }
}
