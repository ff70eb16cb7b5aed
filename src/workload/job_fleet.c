#include "workload/job_fleet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const tm_pool_market_names[] = {"spot", "on-demand", NULL};
const char *const tm_fleet_rent_names[] = {"worthwhile", "all", "cheapest", NULL};
const char *const tm_pool_role_names[] = {"trains", "keeps copies", NULL};

const char *const tm_pods_spot_names[] = {"any", "eks", "karpenter", "gke", "aks", NULL};

enum { LOCAL_INSTANCES_MAX = 256 }; /* of a local cloud */

static const struct tm_job_pool pool_unsaid = {
    .usd_h_millionths = TM_FLEET_UNSAID, .start_ms = TM_FLEET_UNSAID, .notice_ms = TM_FLEET_UNSAID};

static const struct tm_field pool_fields[] = {
    {.key = "instance",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, instance),
     .example = "p3.2xlarge",
     .doc = "instance type"},
    {.key = "cloud",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, cloud),
     .example = "aws",
     .doc = "whose instance type it is"},
    {.key = "region",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, region),
     .example = "us-east-1",
     .doc = "the region it is rented in"},
    {.key = "zone",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, zone),
     .example = "us-east-1a",
     .doc = "the zone it is rented in"},
    {.key = "market",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_job_pool, market),
     .choices = tm_pool_market_names,
     .doc = "spot or on-demand"},
    {.key = "count",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_pool, count),
     .min = 1,
     .max = TM_FLEET_INSTANCES_MAX,
     .example = "4",
     .doc = "how many instances"},
    {.key = "role",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_job_pool, role),
     .choices = tm_pool_role_names,
     .doc = "trains, or keeps copies: holds copies of the state in memory and does not train"},
    {.key = "price",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job_pool, usd_h_millionths),
     .example = "0.92",
     .doc = "dollars per hour of one instance"},
    {.key = "mean_life",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_pool, mean_life_ms),
     .min = 1000,
     .example = "24h",
     .doc = "of a spot instance here, where it differs from that of the fleet's losses"},
    {.key = "infra",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, infra),
     .example = "aws/us-west-2/us-west-2a",
     .doc = "cloud, region and zone in one"},
    {.key = "limit",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_pool, limit),
     .min = 1,
     .max = TM_FLEET_INSTANCES_MAX,
     .example = "16",
     .doc = "most instances to rent from this pool at a time"},
    {.key = "trace",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, trace),
     .example = "us-west-2a.csv",
     .doc = "the trace of this pool"},
    {.key = "from",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_pool, from_ms),
     .example = "20m",
     .doc = "where in that trace the replay starts; what came before is known history"},
    {.key = "start",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_pool, start_ms),
     .example = "3m",
     .doc = "time an instance takes to start"},
    {.key = "notice",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_pool, notice_ms),
     .example = "2m",
     .doc = "notice before a preemption"},
    {.key = "throughput",
     .type = TM_FIELD_NUMBER,
     .offset = offsetof(struct tm_job_pool, throughput),
     .min = 0.001,
     .max = 1000,
     .example = "2",
     .doc = "throughput of an instance here over that of the fleet's instance type, instead of the predicted one"},
    {.key = "partition",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, partition),
     .example = "spot",
     .doc = "a partition of Slurm (cloud: slurm); stands in place of instance"},
    {.key = "time_limit",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_pool, time_limit_ms),
     .min = 60000,
     .example = "4h",
     .doc = "time limit of its Slurm jobs"},
    {.key = "sbatch",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pool, sbatch),
     .example = "--gpus-per-node=4 --account=lab",
     .doc = "further options of sbatch for its Slurm jobs"},
    {.key = NULL},
};

static const struct tm_field losses_fields[] = {
    {.key = "mean_life",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_losses, mean_life_ms),
     .min = 1000,
     .example = "24h",
     .doc = "mean time from the start of a spot instance to its preemption"},
    {.key = "bursts",
     .type = TM_FIELD_NUMBER,
     .offset = offsetof(struct tm_job_losses, bursts),
     .min = 0,
     .max = 1,
     .example = "0.5",
     .doc = "share of the preemptions that come in bursts"},
    {.key = "burst_size",
     .type = TM_FIELD_NUMBER,
     .offset = offsetof(struct tm_job_losses, burst_size),
     .min = 0.001,
     .max = 1,
     .example = "0.25",
     .doc = "share of a pool that a burst takes"},
    {.key = "outage",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_losses, outage_ms),
     .example = "15m",
     .doc = "until a pool gives instances again after a burst"},
    {.key = "replace",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_losses, replace_ms),
     .example = "3m",
     .doc = "until an instance that was preempted alone is replaced"},
    {.key = NULL},
};

static const struct tm_field slurm_fields[] = {
    {.key = "rest",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_slurm, rest),
     .example = "unix:/run/slurmrestd.socket",
     .doc = "address of slurmrestd (unix:/PATH, http://HOST:PORT, https://HOST:PORT), to speak to in place of "
            "Slurm's commands"},
    {.key = "token_file",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_slurm, token_file),
     .example = "/home/me/.slurm-token",
     .doc = "file with the token for it, read before each request; else the variable SLURM_JWT, if it is set"},
    {.key = NULL},
};

static const struct tm_field pods_fields[] = {
    {.key = "image",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, image),
     .example = "registry.example.com/tidemill:0.1",
     .doc = "the image that pods run: tidemill and what the job needs are in it"},
    {.key = "namespace",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, space),
     .example = "training",
     .doc = "the namespace of pods; else that of the context"},
    {.key = "context",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, context),
     .example = "my-cluster",
     .doc = "the context of the kubeconfig; else the current one"},
    {.key = "service_account",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, account),
     .example = "trainer",
     .doc = "the service account of pods; else that of the namespace"},
    {.key = "priority",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, priority),
     .example = "tidemill",
     .doc = "the priority class of pods"},
    {.key = "spot",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_job_pods, spot),
     .choices = tm_pods_spot_names,
     .doc = "how spot nodes are marked: eks, karpenter, gke or aks; any: spot instances go to any node"},
    {.key = "gpus",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_pods, gpus),
     .min = 0,
     .max = 64,
     .example = "1",
     .doc = "GPUs of a pod"},
    {.key = "gpu",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, gpu),
     .example = "amd.com/gpu",
     .doc = "the resource that a GPU is, if not nvidia.com/gpu"},
    {.key = "cpu",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, cpu),
     .example = "4",
     .doc = "processors of a pod, as Kubernetes writes them"},
    {.key = "memory",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_pods, memory),
     .example = "16Gi",
     .doc = "memory of a pod, as Kubernetes writes it"},
    {.key = "node_selector",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_pods, selector),
     .example = "[cloud.google.com/gke-accelerator=nvidia-l4]",
     .doc = "further labels that its node must have, NAME=VALUE each"},
    {.key = NULL},
};

/* What every cloud of VMs lets be said of them. */
#define VM_FIELDS(TYPE, DISK, LIFE)                                                                                    \
    {.key = "disk", .type = TM_FIELD_BYTES, .offset = offsetof(struct TYPE, disk), .example = "200GB", .doc = DISK},   \
        {.key = "silence",                                                                                             \
         .type = TM_FIELD_DURATION,                                                                                    \
         .offset = offsetof(struct TYPE, silence_ms),                                                                  \
         .min = 5000,                                                                                                  \
         .example = "15m",                                                                                             \
         .doc = "a VM ends itself after so long without the run (15m)"},                                               \
        {.key = "life",                                                                                                \
         .type = TM_FIELD_DURATION,                                                                                    \
         .offset = offsetof(struct TYPE, life_ms),                                                                     \
         .min = 60000,                                                                                                 \
         .max = 7 * 24 * 3600000.0,                                                                                    \
         .example = "2d",                                                                                              \
         .doc = LIFE},                                                                                                 \
    {                                                                                                                  \
        .key = "start", .type = TM_FIELD_DURATION, .offset = offsetof(struct TYPE, start_ms), .min = 10000,            \
        .example = "30m", .doc = "a VM that has not joined within so long is ended (30m)"                              \
    }

/* And of the one that run --detach rents. */
#define COORDINATOR_FIELDS(TYPE, ACCOUNT, USUAL, PRICE, EXAMPLE, ABOUT)                                                \
    {.key = "coordinator",                                                                                             \
     .type = TM_FIELD_STRING,                                                                                          \
     .offset = offsetof(struct TYPE, coordinator.type),                                                                \
     .example = USUAL,                                                                                                 \
     .doc = "instance type of the VM that run --detach rents for the coordinator (" USUAL ")"},                        \
        {.key = ACCOUNT,                                                                                               \
         .type = TM_FIELD_STRING,                                                                                      \
         .offset = offsetof(struct TYPE, coordinator.account),                                                         \
         .example = EXAMPLE,                                                                                           \
         .doc = ABOUT},                                                                                                \
        {.key = "coordinator_price",                                                                                   \
         .type = TM_FIELD_MONEY,                                                                                       \
         .offset = offsetof(struct TYPE, coordinator.usd_h_millionths),                                                \
         .example = PRICE,                                                                                             \
         .doc = "dollars per hour of that VM, for the bill (" USUAL ": " PRICE ")"},                                   \
    {                                                                                                                  \
        .key = "reached_from", .type = TM_FIELD_STRING, .offset = offsetof(struct TYPE, coordinator.reached_from),     \
        .example = "203.0.113.7/32",                                                                                   \
        .doc = "addresses from which status, logs and so on reach that VM; without, they read the bucket"              \
    }

static const struct tm_field aws_fields[] = {
    {.key = "image",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_aws, image),
     .example = "ami-0123456789abcdef0",
     .doc = "image that VMs boot; else Amazon's newest for GPUs"},
    {.key = "subnet",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_aws, subnet),
     .example = "subnet-0123456789abcdef0",
     .doc = "subnet of the VMs; else the default VPC's"},
    {.key = "security_group",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_aws, security_group),
     .example = "sg-0123456789abcdef0",
     .doc = "security group of the VMs, whose members reach each other; else the VPC's default group"},
    {.key = "instance_profile",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_aws, instance_profile),
     .example = "training",
     .doc = "instance profile of the VMs, where the job's own code needs one"},
    COORDINATOR_FIELDS(
        tm_job_aws, "coordinator_profile", "t3.small", "0.0208", "tidemill-coordinator",
        "instance profile of that VM: its role rents the others and has the bucket (cloud check aws --emit policy)"),
    VM_FIELDS(tm_job_aws, "size of the first disk; else as the image has it",
              "a VM ends itself after so long in any case (6d)"),
    {.key = NULL},
};

static const struct tm_field azure_fields[] = {
    {.key = "location",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_azure, location),
     .example = "eastus",
     .doc = "where VMs are; else as the pools say"},
    {.key = "resource_group",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_azure, resource_group),
     .example = "training",
     .doc = "resource group of the VMs, made if it is not there (tidemill)"},
    {.key = "image",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_azure, image),
     .example = "canonical:ubuntu-24_04-lts:server:latest",
     .doc = "image that VMs boot, or its id; else Microsoft's Ubuntu for GPUs"},
    {.key = "subnet",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_azure, subnet),
     .example = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Network/virtualNetworks/N/subnets/default",
     .doc = "id of the subnet of the VMs; else of a network tidemill-LOCATION, made if it is not there"},
    {.key = "security_group",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_azure, security_group),
     .example = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Network/networkSecurityGroups/N",
     .doc = "id of a network security group of the VMs"},
    {.key = "identity",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_azure, identity),
     .example = "/subscriptions/S/resourceGroups/G/providers/Microsoft.ManagedIdentity/userAssignedIdentities/N",
     .doc = "id of a managed identity by which a VM deletes itself: one that only shut down would be billed on"},
    {.key = "public_ip",
     .type = TM_FIELD_BOOL,
     .offset = offsetof(struct tm_job_azure, public_ip),
     .example = "true",
     .doc = "each VM has a public address"},
    COORDINATOR_FIELDS(
        tm_job_azure, "coordinator_identity", "Standard_B1ms", "0.0207",
        "/subscriptions/S/resourceGroups/G/providers/Microsoft.ManagedIdentity/userAssignedIdentities/N",
        "id of a managed identity of that VM: it rents the others and has the container (cloud check azure --emit "
        "policy)"),
    VM_FIELDS(tm_job_azure, "size of the first disk; else as the image has it",
              "a VM ends itself after so long in any case (6d)"),
    {.key = NULL},
};

static const struct tm_field gcp_fields[] = {
    {.key = "image",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_gcp, image),
     .example = "projects/debian-cloud/global/images/family/debian-12",
     .doc = "image that VMs boot, also family/NAME or NAME of the project; else Google's newest for PyTorch on GPUs"},
    {.key = "network",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_gcp, network),
     .example = "training",
     .doc = "network of the VMs, whose firewall lets them reach each other (default)"},
    {.key = "subnetwork",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_gcp, subnetwork),
     .example = "training",
     .doc = "subnetwork of the VMs; else the network's, of the region"},
    {.key = "service_account",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_gcp, service_account),
     .example = "vm@my-project.iam.gserviceaccount.com",
     .doc = "service account of the VMs, by which they delete themselves; without a key of ours, URLs are signed in "
            "its name"},
    COORDINATOR_FIELDS(
        tm_job_gcp, "coordinator_account", "e2-small", "0.0168", "coordinator@my-project.iam.gserviceaccount.com",
        "service account of that VM: it rents the others and has the bucket (cloud check gcp --emit policy)"),
    VM_FIELDS(tm_job_gcp, "size of the boot disk; else as the image has it",
              "Google deletes a VM after so long in any case (6d)"),
    {.key = NULL},
};

const struct tm_field tm_job_fleet_fields[] = {
    {.key = "pools",
     .type = TM_FIELD_MAPS,
     .offset = offsetof(struct tm_job_fleet, pools),
     .fields = pool_fields,
     .size = sizeof(struct tm_job_pool),
     .initial = &pool_unsaid,
     .example = "[{instance: p3.2xlarge, count: 4, price: 0.92}]",
     .doc = "the instances, pool by pool; limit, instance, on_demand and the prices follow from them"},
    {.key = "losses",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job_fleet, losses),
     .fields = losses_fields,
     .doc = "what is known of preemptions, instead of a trace: one is drawn from it, by seed"},
    {.key = "hosts",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_fleet, hosts),
     .example = "[gpu1, me@gpu2:2222 gpus=4]",
     .doc = "of cloud hosts: [user@]host[:port] [slots=N or gpus=N] each"},
    {.key = "slurm",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job_fleet, slurm),
     .fields = slurm_fields,
     .doc = "of cloud slurm: how Slurm is spoken to"},
    {.key = "pods",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job_fleet, pods),
     .fields = pods_fields,
     .doc = "of cloud kubernetes: what pods are made of"},
    {.key = "aws",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job_fleet, aws),
     .fields = aws_fields,
     .doc = "of cloud aws: what its VMs have in common"},
    {.key = "gcp",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job_fleet, gcp),
     .fields = gcp_fields,
     .doc = "of cloud gcp: what its VMs have in common"},
    {.key = "azure",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job_fleet, azure),
     .fields = azure_fields,
     .doc = "of cloud azure: what its VMs have in common"},
    {.key = "trace",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_fleet, trace),
     .example = "hadp",
     .doc = "the trace to replay: a file, or hadp, hasp, ladp, lasp"},
    {.key = "from",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, from_ms),
     .example = "20m",
     .doc = "where in the trace the replay starts"},
    {.key = "to",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, to_ms),
     .example = "40m",
     .doc = "where in the trace the replay ends"},
    {.key = "speed",
     .type = TM_FIELD_NUMBER,
     .offset = offsetof(struct tm_job_fleet, speed),
     .min = 1e-3,
     .max = 1e6,
     .example = "60",
     .doc = "replay speed: seconds of the trace per second of real time"},
    {.key = "limit",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, limit),
     .min = 1,
     .max = TM_FLEET_INSTANCES_MAX,
     .example = "6",
     .doc = "most instances at a time"},
    {.key = "scaled",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, scaled),
     .min = 0,
     .max = 1,
     .example = "1",
     .doc = "1: scale the trace so that its largest count is the limit"},
    {.key = "workers",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, workers),
     .min = 1,
     .max = TM_FLEET_WORKERS_EACH_MAX,
     .example = "8",
     .doc = "workers of an instance, which share its GPUs and are lost together; default: one for each GPU"},
    {.key = "workers_min",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, workers_min),
     .min = 1,
     .max = TM_FLEET_INSTANCES_MAX,
     .example = "2",
     .doc = "fewest workers to train with; the job waits while there are fewer"},
    {.key = "memory",
     .type = TM_FIELD_BYTES,
     .offset = offsetof(struct tm_job_fleet, memory),
     .example = "16GB",
     .doc = "memory of an instance; layouts whose stages do not fit are not used"},
    {.key = "stages_min",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, stages_min),
     .min = 1,
     .max = 64,
     .example = "2",
     .doc = "fewest stages of a pipeline"},
    {.key = "stages_max",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, stages_max),
     .min = 1,
     .max = 64,
     .example = "4",
     .doc = "most stages of a pipeline"},
    {.key = "on_demand",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, on_demand),
     .min = 0,
     .max = 64,
     .example = "1",
     .doc = "anchors: number of on-demand instances, which are never preempted and hold copies"},
    {.key = "on_demand_trains",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, on_demand_trains),
     .min = 0,
     .max = 1,
     .example = "0",
     .doc = "1: the anchors also train; 0: they only hold copies"},
    {.key = "notice",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, notice_ms),
     .example = "2m",
     .doc = "notice before a preemption, in the trace's time"},
    {.key = "notice_wall",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, notice_wall_ms),
     .example = "2s",
     .doc = "the same in real time; overrides notice"},
    {.key = "hint",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, hint_ms),
     .example = "5m",
     .doc = "how long before the notice a rebalance hint comes"},
    {.key = "spot_start",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, spot_start_ms),
     .example = "45s",
     .doc = "time an instance takes to start, in the trace's time"},
    {.key = "on_demand_start",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, on_demand_start_ms),
     .example = "90s",
     .doc = "the same for on-demand instances"},
    {.key = "instance",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_fleet, instance),
     .example = "p3.2xlarge",
     .doc = "instance type; its prices are used where the trace has none"},
    {.key = "spot_price",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job_fleet, spot_usd_h_millionths),
     .example = "0.92",
     .doc = "dollars per hour"},
    {.key = "on_demand_price",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job_fleet, on_demand_usd_h_millionths),
     .example = "3.06",
     .doc = "dollars per hour"},
    {.key = "anchor_instance",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_fleet, anchor_instance),
     .example = "c5.xlarge",
     .doc = "instance type of on-demand instances that only keep copies (on_demand_trains: 0)"},
    {.key = "anchor_price",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job_fleet, anchor_usd_h_millionths),
     .example = "0.17",
     .doc = "dollars per hour of one of them"},
    {.key = "seed",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job_fleet, seed),
     .min = 0,
     .max = 9e15,
     .example = "1",
     .doc = "seed that picks which instances are preempted"},
    {.key = "rent",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_job_fleet, rent),
     .choices = tm_fleet_rent_names,
     .example = "all",
     .doc = "of pools that are choices: instances that are worth their money, all up to the limit, or where a sample "
            "is cheapest"},
    {.key = "across_regions",
     .type = TM_FIELD_BOOL,
     .offset = offsetof(struct tm_job_fleet, across_regions),
     .example = "true",
     .doc = "true: workers in several regions may train together"},
    {.key = "region_gbit_s",
     .type = TM_FIELD_NUMBER,
     .offset = offsetof(struct tm_job_fleet, region_gbit_s),
     .min = 1e-3,
     .max = 1e5,
     .example = "5",
     .doc = "Gbit per second of the links between two regions (across_regions)"},
    {.key = "region_usd_gb",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job_fleet, region_usd_gb_millionths),
     .example = "0.02",
     .doc = "dollars per GB from one region to another"},
    {.key = "across_types",
     .type = TM_FIELD_BOOL,
     .offset = offsetof(struct tm_job_fleet, across_types),
     .example = "true",
     .doc = "true: instances of several types may train together, each with its share of the micro-batches"},
    {.key = "poll",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job_fleet, poll_ms),
     .min = 100,
     .example = "30s",
     .doc = "longest time between two looks at a scheduler's queue or list"},
    {.key = NULL},
};

struct tm_job_fleet tm_job_fleet_unsaid(void)
{
    return (struct tm_job_fleet){
        .losses = {.bursts = TM_FLEET_UNSAID, .outage_ms = TM_FLEET_UNSAID, .replace_ms = TM_FLEET_UNSAID},
        .scaled = TM_FLEET_UNSAID,
        .on_demand_trains = TM_FLEET_UNSAID,
        .notice_ms = TM_FLEET_UNSAID,
        .on_demand_start_ms = TM_FLEET_UNSAID,
        .spot_usd_h_millionths = TM_FLEET_UNSAID,
        .aws = {.coordinator = {.usd_h_millionths = TM_FLEET_UNSAID}},
        .azure = {.coordinator = {.usd_h_millionths = TM_FLEET_UNSAID}},
        .gcp = {.coordinator = {.usd_h_millionths = TM_FLEET_UNSAID}},
        .on_demand_usd_h_millionths = TM_FLEET_UNSAID,
        .anchor_usd_h_millionths = TM_FLEET_UNSAID,
        .region_usd_gb_millionths = TM_FLEET_UNSAID};
}

const struct tm_job_pool *tm_job_fleet_pools(const struct tm_job_fleet *fleet, size_t *count)
{
    *count = fleet->pools.count;
    return fleet->pools.items;
}

bool tm_job_fleet_has_partitions(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].partition != NULL) return true;
    return false;
}

/* How many instances its pools have of a market and a role. */
static int64_t pool_instances(const struct tm_job_fleet *fleet, enum tm_pool_market market, enum tm_pool_role role)
{
    int64_t sum = 0;
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].market == (int)market && pools[i].role == (int)role) sum += pools[i].count;
    return sum;
}

bool tm_job_fleet_has_choices(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].trace != NULL || pools[i].limit > 0) return true;
    return false;
}

bool tm_job_fleet_is_mix(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    int64_t spot = 0;
    if (fleet->rent != TM_RENT_ALL || !fleet->across_types) return false;
    for (size_t i = 0; i < count; i++) {
        bool trains = pools[i].role == TM_POOL_TRAINS;
        if (pools[i].trace != NULL || pools[i].limit == 0 || pools[i].throughput > 0) return false;
        if (trains && pools[i].market != TM_POOL_SPOT) return false;
        if (pools[i].region == NULL || strcasecmp(pools[i].region, pools[0].region) != 0) return false;
        spot += trains ? pools[i].limit : 0;
    }
    return spot > 0 && spot <= fleet->limit;
}

int64_t tm_job_fleet_workers_each(const struct tm_job_fleet *fleet)
{
    return fleet->workers > 1 ? fleet->workers : 1;
}

struct tm_job_fleet tm_job_fleet_by_instance(const struct tm_job_fleet *fleet)
{
    struct tm_job_fleet whole = *fleet;
    int64_t each = tm_job_fleet_workers_each(fleet);
    whole.workers = 1;
    whole.workers_min = (fleet->workers_min + each - 1) / each;
    return whole;
}

int64_t tm_job_fleet_workers_max(const struct tm_job_fleet *fleet)
{
    return fleet->limit * tm_job_fleet_workers_each(fleet);
}

int64_t tm_job_fleet_keepers(const struct tm_job_fleet *fleet)
{
    if (fleet->pools.count > 0) return pool_instances(fleet, TM_POOL_ON_DEMAND, TM_POOL_KEEPS_COPIES);
    return fleet->on_demand_trains == 0 ? fleet->on_demand : 0;
}

int64_t tm_job_fleet_spot_max(const struct tm_job_fleet *fleet)
{
    return fleet->pools.count > 0 ? pool_instances(fleet, TM_POOL_SPOT, TM_POOL_TRAINS) : fleet->limit;
}

bool tm_job_losses_said(const struct tm_job_losses *losses)
{
    return losses->mean_life_ms > 0 || losses->bursts >= 0 || losses->burst_size > 0 || losses->outage_ms >= 0 ||
           losses->replace_ms >= 0;
}

bool tm_job_fleet_is_drawn(const struct tm_job_fleet *fleet)
{
    bool said = tm_job_losses_said(&fleet->losses);
    return (fleet->trace == NULL || fleet->trace[0] == '\0') && (said || fleet->pools.count > 0);
}

double tm_job_fleet_notice_s(const struct tm_job_fleet *fleet)
{
    double speed = fleet->speed > 0 ? fleet->speed : TM_FLEET_SPEED;
    if (fleet->notice_wall_ms > 0) return (double)fleet->notice_wall_ms / 1000 * speed;
    return fleet->notice_ms >= 0 ? (double)fleet->notice_ms / 1000 : NAN;
}

int64_t tm_cloud_notice_ms(const char *cloud)
{
    bool short_one = cloud != NULL && (strcasecmp(cloud, "gcp") == 0 || strcasecmp(cloud, "azure") == 0);
    return short_one ? 30000 : 120000;
}

/* ---- the older keys ---- */

/* Of the pools that train; those that have a price already keep it unless `all` is set. Was there one? */
static bool price_pools(struct tm_job_fleet *fleet, enum tm_pool_market market, int64_t usd_h_millionths, bool all)
{
    bool found = false;
    struct tm_job_pool *pools = fleet->pools.items;
    for (size_t i = 0; i < fleet->pools.count; i++) {
        if (pools[i].market != (int)market || pools[i].role != TM_POOL_TRAINS) continue;
        if (!all && pools[i].usd_h_millionths >= 0) continue;
        pools[i].usd_h_millionths = usd_h_millionths;
        found = true;
    }
    return found;
}

void tm_job_fleet_set_price(struct tm_job_fleet *fleet, enum tm_pool_market market, int64_t usd_h_millionths)
{
    (void)price_pools(fleet, market, usd_h_millionths, true);
    *(market == TM_POOL_SPOT ? &fleet->spot_usd_h_millionths : &fleet->on_demand_usd_h_millionths) = usd_h_millionths;
}

/* What instances of a market and role cost on average; TM_FLEET_UNSAID where one has no price, or there are none. */
static int64_t mean_price(const struct tm_job_fleet *fleet, enum tm_pool_market market, int role)
{
    double sum = 0;
    double instances = 0;
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++) {
        if (pools[i].market != (int)market || pools[i].role != role) continue;
        if (pools[i].usd_h_millionths < 0) return TM_FLEET_UNSAID;
        sum += (double)pools[i].usd_h_millionths * (double)pools[i].count;
        instances += (double)pools[i].count;
    }
    return instances > 0 ? llround(sum / instances) : TM_FLEET_UNSAID;
}

static int differs(const char *place, const char *key, const char *said, const char *pools, struct tm_error *e)
{
    return tm_error_set(e, TM_EINPUT, "%s: fleet.%s: %s, but fleet.pools says %s; leave fleet.%s out", place, key, said,
                        pools, key);
}

/* A number that follows from the pools: `unsaid` where the file has none. */
static int settle_number(int64_t *value, int64_t unsaid, int64_t pools, const char *place, const char *key,
                         struct tm_error *e)
{
    char said[24];
    char theirs[24];
    if (*value != unsaid && *value != pools) {
        (void)snprintf(said, sizeof said, "%lld", (long long)*value);
        (void)snprintf(theirs, sizeof theirs, "%lld", (long long)pools);
        return differs(place, key, said, theirs, e);
    }
    *value = pools;
    return 0;
}

static int settle_price(int64_t *value, int64_t pools, const char *place, const char *key, struct tm_error *e)
{
    char said[32];
    char theirs[32];
    if (pools < 0) return 0;
    if (*value >= 0 && *value != pools) {
        (void)snprintf(said, sizeof said, "%g", (double)*value / 1e6);
        (void)snprintf(theirs, sizeof theirs, "%g", (double)pools / 1e6);
        return differs(place, key, said, theirs, e);
    }
    *value = pools;
    return 0;
}

/* The type of the first pool of a role; NULL: there is none. */
static const char *type_of_role(const struct tm_job_fleet *fleet, enum tm_pool_role role)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].role == (int)role) return pools[i].instance;
    return NULL;
}

/* The price of a market's instances that train: pools without one have the fleet's, and the fleet has theirs on
 * average. */
static int settle_training_price(struct tm_job_fleet *fleet, enum tm_pool_market market, int64_t *value,
                                 const char *place, const char *key, struct tm_error *e)
{
    bool filled = *value >= 0 && price_pools(fleet, market, *value, false);
    int64_t mean = mean_price(fleet, market, TM_POOL_TRAINS);
    if (!filled) return settle_price(value, mean, place, key, e);
    *value = mean;
    return 0;
}

static int settle_type(const char **value, const char *pools, const char *place, const char *key, struct tm_error *e)
{
    if (pools == NULL) return 0;
    if (*value != NULL && (*value)[0] != '\0' && strcasecmp(*value, pools) != 0)
        return differs(place, key, *value, pools, e);
    *value = pools;
    return 0;
}

static int settle_market(struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    int64_t trains = pool_instances(fleet, TM_POOL_ON_DEMAND, TM_POOL_TRAINS);
    int64_t keep = pool_instances(fleet, TM_POOL_ON_DEMAND, TM_POOL_KEEPS_COPIES);
    int rc = settle_number(&fleet->on_demand, 0, trains + keep, place, "on_demand", e);
    if (rc == 0 && trains + keep > 0)
        rc = settle_number(&fleet->on_demand_trains, TM_FLEET_UNSAID, trains > 0, place, "on_demand_trains", e);
    if (rc == 0) rc = settle_training_price(fleet, TM_POOL_SPOT, &fleet->spot_usd_h_millionths, place, "spot_price", e);
    if (rc == 0)
        rc = settle_training_price(fleet, TM_POOL_ON_DEMAND, &fleet->on_demand_usd_h_millionths, place,
                                   "on_demand_price", e);
    if (rc == 0)
        rc = settle_type(&fleet->anchor_instance, type_of_role(fleet, TM_POOL_KEEPS_COPIES), place, "anchor_instance",
                         e);
    if (rc == 0)
        rc = settle_price(&fleet->anchor_usd_h_millionths, mean_price(fleet, TM_POOL_ON_DEMAND, TM_POOL_KEEPS_COPIES),
                          place, "anchor_price", e);
    return rc;
}

/* One part of infra: what is said apart must not differ. */
static int locate_part(const char **part, const char *text, size_t length, const char *key, const char *infra,
                       const char *place, struct tm_arena *arena, struct tm_error *e)
{
    char *found = tm_arena_strndup(arena, text, length);
    if (found == NULL) return tm_error_nomem(e);
    if (*part != NULL && strcmp(*part, found) != 0)
        return tm_error_set(e, TM_EINPUT, "%s.%s: %s, but infra says %s; leave %s out", place, key, *part, infra, key);
    *part = found;
    return 0;
}

int tm_job_pool_locate(struct tm_job_pool *pool, size_t number, const char *place, struct tm_arena *arena,
                       struct tm_error *e)
{
    static const char *const keys[] = {"cloud", "region", "zone"};
    const char **parts[] = {&pool->cloud, &pool->region, &pool->zone};
    const char *at = pool->infra;
    if (at == NULL) return 0;
    const char *where = tm_arena_printf(arena, "%s: fleet.pools[%zu]", place, number);
    if (where == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < 3; i++) {
        size_t length = strcspn(at, "/");
        if (length == 0) break;
        int rc = locate_part(parts[i], at, length, keys[i], pool->infra, where, arena, e);
        if (rc != 0) return rc;
        at += length;
        if (*at == '\0') return 0;
        at++;
    }
    return tm_error_set(e, TM_EINPUT,
                        "%s.infra: expected cloud/region/zone, got \"%.60s\"; write for example "
                        "aws/us-west-2/us-west-2a",
                        where, pool->infra);
}

/* Pools that are choices say how many there may be, or have a trace that does. */
static int check_choices(const struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    bool choices = tm_job_fleet_has_choices(fleet);
    if (choices && fleet->trace != NULL && fleet->trace[0] != '\0')
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.trace: pools have traces of their own; write it as the trace of a pool", place);
    for (size_t i = 0; i < count; i++) {
        const struct tm_job_pool *pool = &pools[i];
        if (pool->count == 0 && pool->limit == 0 && pool->trace == NULL)
            return tm_error_set(e, TM_EINPUT, "%s: fleet.pools[%zu].%s: how many instances? write %s: 4", place, i + 1,
                                choices ? "limit" : "count", choices ? "limit" : "count");
        if (pool->count > 0 && pool->limit > 0)
            return tm_error_set(
                e, TM_EINPUT, "%s: fleet.pools[%zu].count: limit says how many at most; leave count out", place, i + 1);
        if (pool->market == TM_POOL_ON_DEMAND && pool->trace != NULL)
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools[%zu].trace: on-demand instances are not preempted; leave trace out, "
                                "and write limit",
                                place, i + 1);
    }
    return 0;
}

static int check_pools(const struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    if (count > TM_FLEET_POOLS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: fleet.pools: %zu pools, but at most %d are read; write fewer", place,
                            count, TM_FLEET_POOLS_MAX);
    for (size_t i = 0; i < count; i++)
        if (pools[i].role == TM_POOL_KEEPS_COPIES && pools[i].market == TM_POOL_SPOT)
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools[%zu]: instances that keep copies must not be preempted; write market: "
                                "on-demand",
                                place, i + 1);
    if (type_of_role(fleet, TM_POOL_TRAINS) == NULL)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: no pool trains; write role: trains for one", place);
    return check_choices(fleet, place, e);
}

static bool has_type(const struct tm_job_fleet *fleet, const char *instance)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].role == TM_POOL_TRAINS && strcasecmp(pools[i].instance, instance) == 0) return true;
    return false;
}

size_t tm_job_fleet_trainers(const struct tm_job_fleet *fleet)
{
    size_t count = 0, trains = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    while (trains < count && pools[trains].role == TM_POOL_TRAINS)
        trains++;
    return trains;
}

/* Pools that train come first, in their order, so that they are numbered without the others. */
static void put_keepers_last(struct tm_job_fleet *fleet)
{
    struct tm_job_pool *pools = fleet->pools.items;
    size_t trains = 0;
    for (size_t i = 0; i < fleet->pools.count; i++) {
        struct tm_job_pool pool = pools[i];
        if (pool.role == TM_POOL_KEEPS_COPIES) continue;
        for (size_t k = i; k > trains; k--)
            pools[k] = pools[k - 1];
        pools[trains++] = pool;
    }
}

/* Of pools that are choices only the type follows; how many are wanted in all, the job says, or all that they have. */
static int settle_choices(struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    int64_t instances = 0;
    bool known = true;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    put_keepers_last(fleet);
    for (size_t i = 0; i < count; i++) {
        int64_t most = pools[i].limit > 0 ? pools[i].limit : pools[i].count;
        if (pools[i].role == TM_POOL_KEEPS_COPIES) continue;
        known = known && (most > 0 || pools[i].market == TM_POOL_ON_DEMAND);
        bool free = pools[i].partition != NULL && pools[i].usd_h_millionths <= 0; /* then it is used like the others */
        instances += pools[i].market == TM_POOL_SPOT || free ? most : 0;
    }
    if (fleet->on_demand > 0)
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.on_demand: beside pools with a trace or a limit, on-demand instances are a pool; "
            "leave on_demand and on_demand_trains out, and write a pool with market: on-demand",
            place);
    if (fleet->limit == 0 && known) fleet->limit = instances;
    if (fleet->instance == NULL || fleet->instance[0] == '\0') fleet->instance = type_of_role(fleet, TM_POOL_TRAINS);
    if (!has_type(fleet, fleet->instance))
        return differs(place, "instance", fleet->instance, type_of_role(fleet, TM_POOL_TRAINS), e);
    return 0;
}

/* Several partitions with limits are choices, if one of them may be preempted; else all of each is wanted. */
static bool partitions_are_choices(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    bool spot = false;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++) {
        if (pools[i].limit == 0) return false;
        spot = spot || pools[i].market == TM_POOL_SPOT;
    }
    return count > 1 && spot;
}

/* Jobs of Slurm cost what the pool says, or nothing, and are called by their partition. */
int tm_job_fleet__settle_partitions(struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    struct tm_job_pool *pools = fleet->pools.items;
    bool choices = partitions_are_choices(fleet);
    for (size_t i = 0; i < fleet->pools.count; i++) {
        struct tm_job_pool *pool = &pools[i];
        if (pool->partition == NULL && pool->instance == NULL)
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools[%zu].instance: missing; write for example instance: p3.2xlarge, or "
                                "partition: for Slurm",
                                place, i + 1);
        if (pool->partition == NULL) continue;
        if (pool->instance == NULL) pool->instance = pool->partition;
        if (pool->usd_h_millionths < 0) pool->usd_h_millionths = 0;
        if (choices) continue;
        if (pool->count == 0) pool->count = pool->limit;
        pool->limit = 0;
    }
    return 0;
}

int tm_job_fleet_settle(struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    int64_t instances = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    if (count == 0) return 0;
    int rc = tm_job_fleet__settle_partitions(fleet, place, e);
    if (rc == 0) rc = check_pools(fleet, place, e);
    if (rc != 0) return rc;
    if (tm_job_fleet_has_choices(fleet)) return settle_choices(fleet, place, e);
    for (size_t i = 0; i < count; i++)
        instances += pools[i].count;
    rc = settle_type(&fleet->instance, type_of_role(fleet, TM_POOL_TRAINS), place, "instance", e);
    if (rc == 0) rc = settle_number(&fleet->limit, 0, instances, place, "limit", e);
    return rc == 0 ? settle_market(fleet, place, e) : rc;
}

/* ---- the local cloud ---- */

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL || strcasecmp(a, b) == 0;
}

static bool is_apart(const struct tm_job_pool *a, const struct tm_job_pool *b)
{
    return !same_text(a->cloud, b->cloud) || !same_text(a->region, b->region);
}

/* What names a pool in a message about two of them: where they lie, if that is what differs, else their types. */
static const char *pool_name(const struct tm_job_pool *pool, bool apart, char out[128])
{
    const char *cloud = pool->cloud != NULL ? pool->cloud : "";
    const char *region = pool->region != NULL ? pool->region : "";
    if (apart)
        (void)snprintf(out, 128, "%.60s%s%.60s", cloud, cloud[0] != '\0' && region[0] != '\0' ? "/" : "", region);
    else
        (void)snprintf(out, 128, "%.120s", pool->instance);
    return out;
}

/* What one local cloud cannot emulate of two pools; NULL: it can. A drawn trace has the price of those that are there
 * on average, a given one has none. */
static const char *clash(const struct tm_job_fleet *fleet, const struct tm_job_pool *a, const struct tm_job_pool *b)
{
    if (is_apart(a, b)) return "instances in two regions";
    if (a->role == b->role && strcasecmp(a->instance, b->instance) != 0)
        return a->role == TM_POOL_TRAINS ? "two instance types that train" : "two instance types that keep copies";
    if (a->market == TM_POOL_ON_DEMAND && b->market == TM_POOL_ON_DEMAND && a->role != b->role)
        return "on-demand instances that train beside others that keep copies";
    bool averaged = a->market == TM_POOL_SPOT && tm_job_fleet_is_drawn(fleet);
    if (!averaged && a->role == b->role && a->market == b->market && a->usd_h_millionths != b->usd_h_millionths)
        return "two prices of one instance type on one market";
    return NULL;
}

int tm_job_fleet_check_local(const struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    bool choices = tm_job_fleet_has_choices(fleet); /* of any type, anywhere: each has a trace of its own */
    for (size_t i = 0; i < count && !choices; i++)
        for (size_t k = 0; k < i; k++) {
            const char *what = clash(fleet, &pools[k], &pools[i]);
            bool apart = is_apart(&pools[k], &pools[i]);
            char names[2][128];
            if (what == NULL) continue;
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools: the local cloud cannot emulate %s (%s, %s); plan with fewer choices "
                                "(--instance, --region, --zone, --market), or edit fleet.pools",
                                place, what, pool_name(&pools[k], apart, names[0]),
                                pool_name(&pools[i], apart, names[1]));
        }
    if (fleet->limit > LOCAL_INSTANCES_MAX)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.%s: %lld instances, but the local cloud has at most %d; %s", place,
                            count > 0 ? "pools" : "limit", (long long)fleet->limit, LOCAL_INSTANCES_MAX,
                            count > 0 ? "plan with --max-nodes" : "write fewer");
    return 0;
}
