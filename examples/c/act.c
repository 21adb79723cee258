/* One episode of an exported policy in C, with the C API of onnxruntime and nothing else.

       bcrl export policy.bcrl --to onnx --out policy.onnx
       cc -O2 act.c -lonnxruntime -lm -o act
       ./act policy.onnx policy-start.onnx policy-observe.onnx THRESHOLD HORIZON < steps.txt

   Every line of steps.txt is one step: the observation, then what the step cost. The program answers with
   the action, the slack and whether the fallback acted. It is for policies with one cost. */

#include <math.h>
#include <onnxruntime_c_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 8 };

static const OrtApi *ort;
static OrtMemoryInfo *memory;

static void check(OrtStatus *status) {
    if (status == NULL) return;
    fprintf(stderr, "act: %s\n", ort->GetErrorMessage(status));
    exit(1);
}

static void *need(void *pointer) {
    if (pointer == NULL) {
        fprintf(stderr, "act: out of memory\n");
        exit(1);
    }
    return pointer;
}

/* A tensor of one row over numbers that the caller keeps. */
static OrtValue *row(void *numbers, size_t count, size_t size, const int64_t *shape, size_t axes,
                     ONNXTensorElementDataType kind) {
    OrtValue *value = NULL;
    check(ort->CreateTensorWithDataAsOrtValue(memory, numbers, count * size, shape, axes, kind, &value));
    return value;
}

static OrtValue *floats(float *numbers, int64_t count) {
    const int64_t shape[2] = {1, count};
    return row(numbers, (size_t)count, sizeof(float), shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
}

/* The shape of an input; the batch, which is not fixed, counts as 1. Returns the number of entries. */
static int64_t shape_of(OrtSession *session, size_t input, int64_t *shape, size_t *axes) {
    OrtTypeInfo *type = NULL;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    check(ort->SessionGetInputTypeInfo(session, input, &type));
    check(ort->CastTypeInfoToTensorInfo(type, &tensor));
    check(ort->GetDimensionsCount(tensor, axes));
    check(ort->GetDimensions(tensor, shape, *axes));
    int64_t count = 1;
    for (size_t i = 0; i < *axes; i++) {
        if (shape[i] < 1) shape[i] = 1;
        count *= shape[i];
    }
    ort->ReleaseTypeInfo(type);
    return count;
}

/* A standard normal number, by Box and Muller. */
static float normal(void) {
    double u = (rand() + 1.0) / (RAND_MAX + 2.0), v = rand() / (RAND_MAX + 1.0);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

static OrtSession *open_graph(OrtEnv *environment, OrtSessionOptions *options, const char *path) {
    OrtSession *session = NULL;
    check(ort->CreateSession(environment, path, options, &session));
    return session;
}

/* Runs a graph whose only output is a new state, and copies it over the old one. */
static void move(OrtSession *session, const char *const *names, OrtValue **inputs, size_t count, float *state,
                 int64_t width) {
    const char *out_name[] = {"state_out"};
    OrtValue *out = NULL;
    void *numbers = NULL;
    check(ort->Run(session, NULL, names, (const OrtValue *const *)inputs, count, out_name, 1, &out));
    check(ort->GetTensorMutableData(out, &numbers));
    memcpy(state, numbers, (size_t)width * sizeof(float));
    ort->ReleaseValue(out);
}

int main(int words, char **word) {
    if (words != 6) {
        fprintf(stderr, "usage: act ACT.onnx START.onnx OBSERVE.onnx THRESHOLD HORIZON < steps.txt\n");
        return 2;
    }
    ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    if (ort == NULL) {
        fprintf(stderr, "act: this onnxruntime is older than the header it was compiled with\n");
        return 1;
    }
    OrtEnv *environment = NULL;
    OrtSessionOptions *options = NULL;
    OrtAllocator *allocator = NULL;
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "act", &environment));
    check(ort->CreateSessionOptions(&options));
    check(ort->SetIntraOpNumThreads(options, 1));
    check(ort->GetAllocatorWithDefaultOptions(&allocator));
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    OrtSession *act = open_graph(environment, options, word[1]);
    OrtSession *start = open_graph(environment, options, word[2]);
    OrtSession *observe = open_graph(environment, options, word[3]);

    /* The inputs of act: observation, state, and noise where the policy draws. */
    size_t inputs = 0;
    check(ort->SessionGetInputCount(act, &inputs));
    if (inputs > MOST_INPUTS) return 1;
    char *names[MOST_INPUTS];
    float *numbers[MOST_INPUTS], *observation = NULL, *state = NULL;
    int64_t counts[MOST_INPUTS], sizes = 0, width = 0;
    OrtValue *values[MOST_INPUTS];
    for (size_t i = 0; i < inputs; i++) {
        int64_t shape[8];
        size_t axes = 0;
        check(ort->SessionGetInputName(act, i, allocator, &names[i]));
        counts[i] = shape_of(act, i, shape, &axes);
        numbers[i] = need(calloc((size_t)counts[i], sizeof(float)));
        values[i] = row(numbers[i], (size_t)counts[i], sizeof(float), shape, axes,
                        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
        if (strcmp(names[i], "observation") == 0) observation = numbers[i], sizes = counts[i];
        if (strcmp(names[i], "state") == 0) state = numbers[i], width = counts[i];
    }
    if (observation == NULL || state == NULL) return 1;

    float threshold = strtof(word[4], NULL), cost = 0.0f;
    int64_t horizon = strtoll(word[5], NULL, 10);
    const int64_t one[2] = {1, 1};
    const char *const told[] = {"threshold", "horizon"};
    OrtValue *goal[] = {floats(&threshold, 1),
                        row(&horizon, 1, sizeof horizon, one, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)};
    move(start, told, goal, 2, state, width);

    const char *const paid[] = {"state", "cost"};
    OrtValue *step[] = {floats(state, width), floats(&cost, 1)};
    const char *const said[] = {"action", "slack", "fallback", "state_out"};
    for (int64_t t = 0; t < horizon; t++) {
        for (int64_t i = 0; i < sizes; i++)
            if (scanf("%f", &observation[i]) != 1) return 0; /* no more steps */
        if (scanf("%f", &cost) != 1) return 0;
        for (size_t i = 0; i < inputs; i++)
            if (strncmp(names[i], "noise_", 6) == 0)
                for (int64_t j = 0; j < counts[i]; j++) numbers[i][j] = normal();
        OrtValue *out[4] = {NULL, NULL, NULL, NULL};
        check(ort->Run(act, NULL, (const char *const *)names, (const OrtValue *const *)values, inputs, said, 4,
                       out));
        OrtTensorTypeAndShapeInfo *info = NULL;
        ONNXTensorElementDataType kind;
        size_t length = 0;
        void *data[4];
        for (int i = 0; i < 4; i++) check(ort->GetTensorMutableData(out[i], &data[i]));
        check(ort->GetTensorTypeAndShape(out[0], &info));
        check(ort->GetTensorElementType(info, &kind));
        check(ort->GetTensorShapeElementCount(info, &length));
        if (kind == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
            printf("%lld ", (long long)*(int64_t *)data[0]);
        else
            for (size_t i = 0; i < length; i++) printf("%.9g ", ((float *)data[0])[i]);
        printf("%.9g %d\n", *(float *)data[1], (int)*(unsigned char *)data[2]);
        memcpy(state, data[3], (size_t)width * sizeof(float));
        ort->ReleaseTensorTypeAndShapeInfo(info);
        for (int i = 0; i < 4; i++) ort->ReleaseValue(out[i]);
        move(observe, paid, step, 2, state, width);
    }
    return 0; /* the system takes the sessions back */
}
