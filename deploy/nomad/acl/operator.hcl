# Whoever runs `temper cluster init | plan | apply | status | scale | logs | down`.
#   nomad acl policy apply temper-operator deploy/nomad/acl/operator.hcl
#   nomad acl token create -name NAME -policy temper-operator
namespace "default" {
  policy = "read"
  capabilities = ["list-jobs", "read-job", "submit-job", "parse-job", "scale-job", "read-job-scaling", "read-logs", "read-fs", "alloc-lifecycle"]
  variables {
    path "temper/*" {
      capabilities = ["list", "read", "write"]
    }
    path "nomad/jobs/*" {
      capabilities = ["list", "read", "write"]
    }
  }
}

agent {
  policy = "read"
}

# "write" for `temper cluster drain` and `undrain`.
node {
  policy = "write"
}

node_pool "*" {
  policy = "read"
}

# The driver raw_exec and host volumes.
host_volume "*" {
  policy = "write"
}
