# What control workers do for runs with workers of their own. "temper" is the cluster's name.
#   nomad acl policy apply temper-control deploy/nomad/acl/control.hcl
#   nomad acl token create -name temper-control -policy temper-control
# Whoever has such a token starts programs on the nodes.
namespace "default" {
  capabilities = ["list-jobs", "read-job", "submit-job", "scale-job", "read-job-scaling"]
  variables {
    path "nomad/jobs/temper-run" {
      capabilities = ["read"]
    }
    path "nomad/jobs/trainer-*" {
      capabilities = ["write"]
    }
    path "nomad/jobs/rollout-*" {
      capabilities = ["write"]
    }
    path "nomad/jobs/engine-*" {
      capabilities = ["write"]
    }
  }
}

# "write" empties nodes without losing a step.
node {
  policy = "write"
}

node_pool "*" {
  policy = "read"
}
