"""Slow twins of `embasis.functional`: plain loops in float64 that nobody can doubt.

Every function has the name of its fast twin, takes tensors or arrays, and returns numpy arrays or floats.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from reference_adversaries import *  # noqa: F403
from reference_alignment import *  # noqa: F403
from reference_consistency import *  # noqa: F403
from reference_map_alignment import *  # noqa: F403
from reference_style import *  # noqa: F403
from reference_trees import *  # noqa: F403


def wide(x):
    """Anything as float64."""
    return np.asarray(x.detach().double() if hasattr(x, "detach") else x, dtype=np.float64)


def whole(x):
    """Anything as a list of Python integers."""
    return [int(value) for value in x]


def softmax(row):
    top = max(row)
    parts = [math.exp(value - top) for value in row]
    return [part / sum(parts) for part in parts]


def log_softmax(row):
    top = max(row)
    size = top + math.log(sum(math.exp(value - top) for value in row))
    return [value - size for value in row]


def softmax_rows(scores):
    return np.array([softmax(row) for row in scores]).reshape(np.shape(scores))


# sites


def to_sites(grid):
    grid = wide(grid)
    rows = [
        [grid[(b, feature, *place)] for feature in range(grid.shape[1])]
        for b in range(grid.shape[0])
        for place in itertools.product(*(range(size) for size in grid.shape[2:]))
    ]
    return np.array(rows).reshape(-1, grid.shape[1])


def domain_sums(x):
    x = wide(x)
    total, square = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for row in x:
        total += row
        square += row**2
    return float(len(x)), total, square


def centre_and_scale(x):
    """From the rows themselves, in two passes; the spread of a constant column is reported as 0."""
    x = wide(x)
    centre, scale = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for j in range(x.shape[1]):
        column = [float(value) for value in x[:, j]]
        if len(set(column)) == 1:
            centre[j] = column[0]
            continue
        centre[j] = math.fsum(column) / len(column)
        scale[j] = math.sqrt(math.fsum((value - centre[j]) ** 2 for value in column) / len(column))
    return centre, scale


def standardise(x, centre, scale):
    return (wide(x) - wide(centre)) / wide(scale)


def unit_rows(x):
    x = wide(x).copy()
    for row in x:
        length = math.sqrt(math.fsum(float(value) ** 2 for value in row))
        if length > 0:
            row /= length
    return x


# em


def kernel_scores(x, mu, sharpness, kernel="dot"):
    x, mu = wide(x), wide(mu)
    scores = np.zeros((len(x), len(mu)))
    for n in range(len(x)):
        for k in range(len(mu)):
            dot = sum(x[n, j] * mu[k, j] for j in range(x.shape[1]))
            half = sum(value**2 for value in mu[k]) / 2
            scores[n, k] = sharpness * (dot - half if kernel == "gaussian" else dot)
    return scores


def responsibilities(x, mu, sharpness, kernel="dot"):
    return softmax_rows(kernel_scores(x, mu, sharpness, kernel))


def em_statistics(x, mu, sharpness, weight=None, kernel="dot", log_prior=None, component_class=None):
    """mass, total, objective."""
    x, mu = wide(x), wide(mu)
    weight = np.ones(len(x)) if weight is None else wide(weight)
    scores = kernel_scores(x, mu, sharpness, kernel)
    for n in range(len(x)):
        for k in range(len(mu)):
            scores[n][k] += 0.0 if log_prior is None else float(log_prior[n, component_class[k]])
    mass, total, objective = np.zeros(len(mu)), np.zeros(mu.shape), 0.0
    for n in range(len(x)):
        z = softmax(scores[n])
        for k in range(len(mu)):
            mass[k] += weight[n] * z[k]
            total[k] += weight[n] * z[k] * x[n]
        top = max(scores[n])
        objective += weight[n] * (top + math.log(sum(math.exp(s - top) for s in scores[n])))
    return mass, total, objective


def m_step(mass, total, mu, sphere=False):
    """New mu, and 1 where a component has mass."""
    mass, total, mu = wide(mass), wide(total), wide(mu).copy()
    alive = np.zeros(len(mu))
    for k in range(len(mu)):
        if mass[k] <= 1.2e-34:
            continue
        mean = total[k] / mass[k]
        length = math.sqrt(sum(value**2 for value in mean))
        if sphere and length <= 1e-12:
            continue
        alive[k] = 1
        mu[k] = mean / length if sphere else mean
    return mu, alive


def effective_components(mass):
    mass = [max(value, 0.0) for value in wide(mass)]
    shares = [value / sum(mass) for value in mass if value > 0]
    return math.exp(-sum(share * math.log(share) for share in shares))


def mean_perplexity(z):
    entropies = [-sum(value * math.log(value) for value in row if value > 0) for row in wide(z)]
    return math.exp(sum(entropies) / len(entropies))


def domain_weights(labelled):
    flags = [bool(flag) for flag in labelled]
    domains = len(set(flags))
    return np.array([len(flags) / (domains * flags.count(flag)) for flag in flags])


def gaussian_log_likelihood(x, mu, sharpness):
    """Σ_n log (1/K) Σ_k N(x_n; mu_k, I/sharpness), up to the constants of the normal density."""
    x, mu = wide(x), wide(mu)
    value = 0.0
    for row in x:
        exponents = [-sharpness * sum((row - centre) ** 2) / 2 for centre in mu]
        top = max(exponents)
        value += top + math.log(sum(math.exp(e - top) for e in exponents) / len(mu))
    return value


# basis


def orthogonality(w):
    w = wide(w)
    k = len(w)
    return sum((sum(w[i] * w[j]) - (i == j)) ** 2 for i in range(k) for j in range(k)) / k**2


def reconstruction(x, w):
    x, w = wide(x), wide(w)
    z = np.array([[sum(row * basis) for basis in w] for row in x])
    back = np.array([sum(z[n, k] * w[k] for k in range(len(w))) for n in range(len(x))])
    return float(sum((x - back).ravel() ** 2) / x.size)


def affinity(x, w, y):
    """By the n × n matrices themselves."""
    x, w, y = wide(x), wide(w), whole(y)
    n = len(x)
    z = np.array([[sum(row * basis) for basis in w] for row in x])
    return sum((sum(z[i] * z[j]) - (y[i] == y[j])) ** 2 for i in range(n) for j in range(n)) / n**2


# moments


def component_probabilities(mu, weight, bias, sigma=0.0, noise=None):
    """Exact for sigma = 0, else the mean over `noise`."""
    mu, weight, bias = wide(mu), wide(weight), wide(bias)
    noise = np.zeros((1, mu.shape[1])) if noise is None or sigma == 0 else wide(noise)
    p = np.zeros((len(mu), len(weight)))
    for k in range(len(mu)):
        for e in noise:
            p[k] += softmax([sum(w * (mu[k] + sigma * e)) + b for w, b in zip(weight, bias, strict=True)])
    return p / len(noise)


def probit_pair(mu, weight, bias, sigma):
    """Two classes: P(class 0) by the probit approximation of a logistic-normal integral (MacKay)."""
    mu, weight, bias = wide(mu), wide(weight), wide(bias)
    difference, shift = weight[0] - weight[1], bias[0] - bias[1]
    spread = math.sqrt(1 + math.pi / 8 * sigma**2 * sum(difference**2))
    return np.array([1 / (1 + math.exp(-(sum(difference * centre) + shift) / spread)) for centre in mu])


def label_moments(z, p, q=None):
    """By the joint distribution of component and class, an explicit n × k × c tensor."""
    z, p = wide(z), wide(p)
    n, k, c = len(z), len(p), p.shape[1]
    q = np.full((n, c), 1 / c) if q is None else wide(q)
    joint = np.zeros((n, k, c))
    mean, between, within = np.zeros((n, c)), np.zeros((n, c)), np.zeros((n, c))
    for i in range(n):
        for j in range(k):
            for h in range(c):
                joint[i, j, h] = z[i, j] * p[j, h] * q[i, h]
        joint[i] /= joint[i].sum()
        component = joint[i].sum(1)
        inside = [joint[i, j] / component[j] if component[j] > 0 else np.zeros(c) for j in range(k)]
        mean[i] = sum(component[j] * inside[j] for j in range(k))
        between[i] = sum(component[j] * (inside[j] - mean[i]) ** 2 for j in range(k))
        within[i] = sum(component[j] * inside[j] * (1 - inside[j]) for j in range(k))
    return mean, between, within


def neighbour_moments(x, bank, p, count):
    """By sorting the kept sites by their cosine, site after site."""
    x, bank, p = wide(x), wide(bank), wide(p)
    mean, second = [], []
    for row in x:
        nearest = sorted(range(len(bank)), key=lambda m: -float(row @ bank[m]))[:count]
        mean.append(sum(p[m] for m in nearest) / len(nearest))
        second.append(sum(p[m] ** 2 for m in nearest) / len(nearest))
    return np.array(mean), np.array(second)


def pool_moments(moments, mean, second, share):
    """By the law of total variance over two groups of members: those of the site, and its neighbours."""
    own, between, within = (wide(part) for part in moments)
    mean, second = wide(mean), wide(second)
    pooled = (1 - share) * own + share * mean
    inside = (1 - share) * within + share * (mean - second)
    apart = (1 - share) * between + share * (second - mean**2)
    apart = apart + (1 - share) * (own - pooled) ** 2 + share * (mean - pooled) ** 2
    return pooled, apart, inside


def scalar_uncertainty(mean, between, within, kind):
    mean, between, within = wide(mean), wide(between), wide(within)
    values = []
    for n in range(len(mean)):
        values.append(1 - sum(mean[n] ** 2) if kind == "gini" else sum(between[n]))
    return np.array(values)


def literal_moments(z, mu, weight, bias, noise, softmax_first=True):
    z, mu, weight, bias, noise = wide(z), wide(mu), wide(weight), wide(bias), wide(noise)
    means, variances = [], []
    for row in z:
        centre = sum(row[k] * mu[k] for k in range(len(mu)))
        draws = [[sum(w * (centre + e)) + b for w, b in zip(weight, bias, strict=True)] for e in noise]
        draws = np.array([softmax(draw) for draw in draws] if softmax_first else draws)
        means.append(sum(draws) / len(draws))
        variances.append(sum((draws - means[-1]) ** 2) / len(draws))
    return np.array(means), np.array(variances)


def draw_labels(mean, uniform, temperature=1.0):
    labels = []
    for row, u in zip(wide(mean), wide(uniform), strict=True):
        parts = [value ** (1 / temperature) for value in row]
        reached, label = 0.0, len(parts) - 1
        for c, part in enumerate(parts):
            reached += part / sum(parts)
            if u < reached:
                label = c
                break
        labels.append(label)
    return labels


# selection


def threshold_of(score, label, classes, keep):
    """threshold, how many to trust, how many of those exactly at the threshold: by sorting."""
    answers = []
    for c in range(classes):
        mine = sorted(max(float(s), 0.0) for s, one in zip(score, label, strict=True) if int(one) == c)
        rank = math.ceil(keep * len(mine) - 1e-9)
        if rank <= 0:
            answers.append((-1.0, 0, 0))
        else:
            limit = mine[rank - 1]
            answers.append((limit, rank, rank - sum(value < limit for value in mine)))
    return answers


# losses


def one_hot(label, classes, smoothing=0.0):
    rows = []
    for one in whole(label):
        rows.append([(1 - smoothing) * (max(one, 0) == c) + smoothing / classes for c in range(classes)])
    return np.array(rows).reshape(-1, classes)


def weighted_cross_entropy(logits, target, weight):
    top = bottom = 0.0
    for row, wanted, w in zip(wide(logits), wide(target), wide(weight), strict=True):
        top -= w * sum(t * log for t, log in zip(wanted, log_softmax(row), strict=True))
        bottom += w
    return top / bottom if bottom else 0.0


def linear_classifier_loss(x, target, weight, decay, matrix, bias):
    """Σ_n weight_n · CE(target_n, softmax(matrix x_n + bias)) + decay / 2 · ‖matrix‖²."""
    loss = decay / 2 * sum(float(value) ** 2 for row in matrix for value in row)
    for row, wanted, w in zip(wide(x), wide(target), wide(weight), strict=True):
        scores = [sum(a * b for a, b in zip(part, row, strict=True)) + c for part, c in zip(matrix, bias, strict=True)]
        loss -= w * sum(t * log for t, log in zip(wanted, log_softmax(scores), strict=True))
    return loss


def basis_head_loss(z, y, weight, mu, decay, matrix, bias):
    """−Σ_n weight_n · log Σ_k z_nk softmax(matrix mu_k + bias)_y(n) + decay / 2 · ‖matrix‖²."""
    loss = decay / 2 * sum(float(value) ** 2 for row in matrix for value in row)
    p = [softmax([float(part @ one + c) for part, c in zip(matrix, bias, strict=True)]) for one in wide(mu)]
    for shares, label, w in zip(wide(z), whole(y), wide(weight), strict=True):
        loss -= w * math.log(sum(share * each[label] for share, each in zip(shares, p, strict=True)))
    return loss


def inverse_variance(variance, floor=0.05, ratio=10.0):
    raw = [1 / (max(value, 0.0) + floor) for value in wide(variance)]
    mean = sum(raw) / len(raw)
    return np.array([min(max(value / mean, 1 / ratio), ratio) for value in raw])


def kld_regulariser(logits):
    """KL(uniform ‖ p) less its constant −log C."""
    values = []
    for row in wide(logits):
        c = len(row)
        divergence = sum((math.log(1 / c) - log) / c for log in log_softmax(row))
        values.append(divergence + math.log(c))
    return np.array(values)


def prediction_entropy(logits):
    return np.array([-sum(math.exp(log) * log for log in log_softmax(row)) for row in wide(logits)])


def entropy_regulariser(logits):
    return -prediction_entropy(logits)


def l2_regulariser(logits):
    return np.array([sum(value**2 for value in softmax(row)) for row in wide(logits)])


def entropy_smoothed_cost(y, p, ceiling, alpha):
    """What LRENT minimises over the simplex, for one row."""
    return sum(
        -a * math.log(b / s) + (alpha * a * math.log(a) if a > 0 else 0.0)
        for a, b, s in zip(y, p, ceiling, strict=True)
    )


def l2_smoothed_cost(y, p, ceiling, alpha):
    """What LRL2 minimises over the simplex, for one row."""
    return sum(-a * math.log(b / s) + alpha / 2 * a**2 for a, b, s in zip(y, p, ceiling, strict=True))


def entropy_smoothed(p, ceiling, alpha):
    ceiling = wide(ceiling)
    return np.array([softmax([math.log(b / s) / alpha for b, s in zip(row, ceiling, strict=True)]) for row in wide(p)])


def l2_smoothed(p, ceiling, alpha):
    ceiling = wide(ceiling)
    return simplex_projection([[math.log(b / s) / alpha for b, s in zip(r, ceiling, strict=True)] for r in wide(p)])


def simplex_projection(v):
    """By trying every set of classes that may be positive, and keeping the nearest feasible point."""
    rows = []
    for row in wide(v):
        best, distance = None, math.inf
        for size in range(1, len(row) + 1):
            for support in itertools.combinations(range(len(row)), size):
                level = (sum(row[list(support)]) - 1) / size
                point = np.array([row[c] - level if c in support else 0.0 for c in range(len(row))])
                if point.min() >= 0 and sum((point - row) ** 2) < distance:
                    best, distance = point, sum((point - row) ** 2)
        rows.append(best)
    return np.array(rows)


def average(values, weight=None):
    """Every site as often as its weight says."""
    rows, weights = wide(values), [1.0] * len(values) if weight is None else wide(weight)
    return sum(share * row for share, row in zip(weights, rows, strict=True)) / sum(weights)


def mean_variance(between, within, weight=None):
    return average((wide(between) + wide(within)).sum(1), weight)


def class_balance(mean, prior, weight=None):
    found, prior = average(mean, weight), wide(prior)
    return sum(a * math.log(a / b) for a, b in zip(prior, found, strict=True) if a > 0)


# calibration and metrics


def reliability_bins(confidence, right, bins=15, weight=None):
    table, weights = np.zeros((bins, 3)), [1.0] * len(confidence) if weight is None else wide(weight)
    for value, hit, share in zip(wide(confidence), right, weights, strict=True):
        table[bin_of(value, bins)] += share * np.array([1.0, value, float(hit)])
    return table


def expected_calibration_error(confidence, right, bins=15):
    """From the sites themselves: Σ_b (n_b/n) |accuracy_b − confidence_b|."""
    table = reliability_bins(confidence, right, bins)
    filled = [row for row in table if row[0]]
    return sum(row[0] / len(confidence) * abs(row[2] / row[0] - row[1] / row[0]) for row in filled)


def bin_of(value, bins):
    """The first bin whose upper edge is not below the value; the last one for what is above them all."""
    return next((b for b in range(bins) if value * bins <= b + 1), bins - 1)


def on_grid(value, bits):
    """In whole numbers of the grid; a half goes to the even one."""
    return round(value * 2**bits) / 2**bits


def nonzero(mask):
    return [n for n, flag in enumerate(mask.flatten().tolist()) if flag]


def fine_bins(confidence, right):
    table = np.zeros((2**16, 3))
    for value, hit in zip(np.float32(confidence), right, strict=True):
        table[fine_bin(np.float32(1) - value)] += (1, value, bool(hit))
    return table


def exact_bins(confidence, right):
    pairs = list(zip(wide(confidence).tolist(), [bool(flag) for flag in right], strict=True))
    same = [[pair for pair in pairs if pair[0] == value] for value in sorted({v for v, _ in pairs}, reverse=True)]
    return np.array([[len(group), sum(v for v, _ in group), sum(hit for _, hit in group)] for group in same])


def adaptive_calibration_error(confidence, right, bins=15, group=float):
    """Bins of n / bins sites, the surest first; each site by its shares, those of one group in no order."""
    order = sorted(zip(wide(confidence).tolist(), [bool(flag) for flag in right], strict=True), reverse=True)
    gaps = [value - flag for value, flag in order]
    keys = [group(value) for value, _ in order]
    gaps = [sum(g for g, k in zip(gaps, keys, strict=True) if k == key) / keys.count(key) for key in keys]
    total, size = 0.0, len(gaps) / bins
    for b in range(bins):
        low, high = b * size, (b + 1) * size
        total += abs(sum(gap * max(0.0, min(n + 1, high) - max(n, low)) for n, gap in enumerate(gaps)))
    return total / max(len(gaps), 1)


def probability_of(mean, truth):
    return np.array([row[max(y, 0)] for row, y in zip(wide(mean), whole(truth), strict=True)])


def classwise_bins(mean, truth, bins=15):
    """Every probability of every site by itself."""
    table = np.zeros((wide(mean).shape[1], bins, 3))
    for row, y in zip(wide(mean), whole(truth), strict=True):
        for c, value in enumerate(row if y >= 0 else []):
            table[c, bin_of(value, bins)] += (1, value, y == c)
    return table


def classwise_calibration_error(mean, truth, bins=15):
    """The calibration error of each class's column against whether it is the true one."""
    mean, known = wide(mean), [n for n, y in enumerate(whole(truth)) if y >= 0]
    errors = [
        expected_calibration_error(mean[known, c], [whole(truth)[n] == c for n in known], bins) if known else 0.0
        for c in range(mean.shape[1])
    ]
    return sum(errors) / len(errors)


def brier_sum(mean, truth):
    pairs = [(row, y) for row, y in zip(wide(mean), whole(truth), strict=True) if y >= 0]
    return sum((value - (y == c)) ** 2 for row, y in pairs for c, value in enumerate(row))


def brier_parts(mean, truth, bins=15):
    """Reliability, resolution, uncertainty, and fourth what probabilities vary within bins."""
    mean, y = wide(mean), np.array(whole(truth))
    parts = [0.0, 0.0, 0.0, 0.0]
    for c in range(mean.shape[1]):
        true, share = y == c, float((y == c).mean())
        parts[2] += share * (1 - share)
        places = np.array([bin_of(value, bins) for value in mean[:, c]])
        for b in set(places.tolist()):
            p, o = mean[places == b, c], true[places == b]
            weight = len(p) / len(y)
            parts[0] += weight * (p.mean() - o.mean()) ** 2
            parts[1] += weight * (o.mean() - share) ** 2
            parts[3] += weight * (((p - p.mean()) ** 2).mean() - 2 * ((p - p.mean()) * (o - o.mean())).mean())
    return parts


def negative_log_likelihood(mean, truth):
    mean, truth = wide(mean), whole(truth)
    return -sum(math.log(max(mean[n, truth[n]], 1e-12)) for n in range(len(truth))) / len(truth)


def auroc(score, positive):
    """By counting pairs."""
    score, positive = wide(score), [bool(flag) for flag in positive]
    pairs = [
        (a > b) + (a == b) / 2
        for a, up in zip(score, positive, strict=True)
        if up
        for b, other in zip(score, positive, strict=True)
        if not other
    ]
    return sum(pairs) / len(pairs) if pairs else None


def risk_at(uncertainty, right, kept):
    """Share of errors among the `kept` surest; ties come in no order, so each counts by the share that is kept."""
    uncertainty, wrong = wide(uncertainty), [not flag for flag in right]
    last = sorted(uncertainty)[kept - 1]
    sure = [error for value, error in zip(uncertainty, wrong, strict=True) if value < last]
    ties = [error for value, error in zip(uncertainty, wrong, strict=True) if value == last]
    return (sum(sure) + (kept - len(sure)) * sum(ties) / len(ties)) / kept


def risk_area(uncertainty, right):
    return sum(risk_at(uncertainty, right, kept) for kept in range(1, len(right) + 1)) / max(len(right), 1)


def average_precision(uncertainty, right):
    """By walking down the thresholds that occur."""
    uncertainty, wrong = wide(uncertainty), [not flag for flag in right]
    if not 0 < sum(wrong) < len(wrong):
        return None
    area = recall = 0.0
    for threshold in sorted(set(uncertainty.tolist()), reverse=True):
        seen = [error for value, error in zip(uncertainty, wrong, strict=True) if value >= threshold]
        area += (sum(seen) / sum(wrong) - recall) * sum(seen) / len(seen)
        recall = sum(seen) / sum(wrong)
    return area


def coverage_at(uncertainty, right, precision):
    """By trying every threshold that occurs."""
    found = None
    for threshold in sorted(set(wide(uncertainty).tolist())):
        kept = [bool(flag) for value, flag in zip(wide(uncertainty), right, strict=True) if value <= threshold]
        if sum(kept) / len(kept) >= precision - 1e-12:
            found = len(kept) / len(right)
    return found


def fine_bin(value):
    """The bits of a float32 but for the lowest 14."""
    return int.from_bytes(np.float32(max(value, 0.0)).tobytes(), "little") >> 14


def rank_counts(uncertainty, right):
    counts = np.zeros((2**17, 2), dtype=np.int64)
    for value, flag in zip(wide(uncertainty), right, strict=True):
        counts[fine_bin(value), 0 if flag else 1] += 1
    return counts


def exact_counts(uncertainty, right):
    pairs = list(zip(wide(uncertainty).tolist(), [bool(flag) for flag in right], strict=True))
    return [
        [pairs.count((value, True)), pairs.count((value, False))] for value in sorted({value for value, _ in pairs})
    ]


def spread_counts(uncertainty, right, bins=20):
    counts = np.zeros((bins, 2), dtype=np.int64)
    for value, flag in zip(wide(uncertainty), right, strict=True):
        counts[bin_of(value, bins), 0 if flag else 1] += 1
    return counts


def confusion_matrix(truth, predicted, classes):
    counts = np.zeros((classes, classes), dtype=np.int64)
    for t, guess in zip(whole(truth), whole(predicted), strict=True):
        if t >= 0:
            counts[t, guess] += 1
    return counts


def accuracy(truth, predicted):
    known = [(t, guess) for t, guess in zip(whole(truth), whole(predicted), strict=True) if t >= 0]
    return sum(t == guess for t, guess in known) / len(known) if known else 0.0


def class_recalls(truth, predicted, classes):
    recalls = []
    for c in range(classes):
        mine = [guess == c for t, guess in zip(whole(truth), whole(predicted), strict=True) if t == c]
        recalls.append(sum(mine) / len(mine) if mine else math.nan)
    return np.array(recalls)


def mean_class_accuracy(truth, predicted, classes):
    present = [value for value in class_recalls(truth, predicted, classes) if not math.isnan(value)]
    return sum(present) / len(present) if present else 0.0


def dataset_iou(truth, predicted, classes):
    pairs = [(t, guess) for t, guess in zip(whole(truth), whole(predicted), strict=True) if t >= 0]
    values = []
    for c in range(classes):
        union = sum(t == c or guess == c for t, guess in pairs)
        values.append(sum(t == c and guess == c for t, guess in pairs) / union if union else math.nan)
    return np.array(values)


def class_counts(label, classes):
    return np.array([whole(label).count(c) for c in range(classes)])


# randomness


def uniform(sample_id, offset):
    """splitmix64 in Python's own integers."""
    mask = (1 << 64) - 1
    z = (sample_id * 0x9E3779B97F4A7C15 + offset) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    return (z >> 11) / 2**53


def training_priors(known, pseudo_label_counts, weight):
    if pseudo_label_counts is None or sum(pseudo_label_counts) == 0:
        return [float(share) for share in known]
    total = sum(float(count) + 0.5 for count in pseudo_label_counts)
    pairs = zip(known, pseudo_label_counts, strict=True)
    return [(float(share) + weight * (float(count) + 0.5) / total) / (1 + weight) for share, count in pairs]


def inverse_temperature_for_entropy(scores, entropy, weight=None):
    """The largest power on a fine grid of (0, 1] whose mean entropy is at least the one asked for."""
    for power in np.geomspace(1.0, 1e-4, 4000):
        exponents = power * wide(scores)
        rows = np.exp(exponents - exponents.max(1, keepdims=True))
        rows /= rows.sum(1, keepdims=True)
        found = [-sum(value * math.log(value) for value in row if value > 0) for row in rows]
        if average(np.array(found), weight) >= entropy:
            return power
    return 1e-4


def matched_scale(centre, scale, here, there):
    """Feature by feature: the line that takes `there` to the mean and deviation of (here − centre) / scale."""
    centres, scales = [], []
    for c, s, a, b in zip(centre.tolist(), scale.tolist(), here.T.tolist(), there.T.tolist(), strict=True):
        wanted = [(value - c) / s for value in a]
        mean, other = sum(wanted) / len(wanted), sum(b) / len(b)
        spread = math.sqrt(sum((value - mean) ** 2 for value in wanted) / len(wanted))
        width = math.sqrt(sum((value - other) ** 2 for value in b) / len(b)) / spread
        scales.append(width)
        centres.append(other - width * mean)
    return centres, scales


# maps


def corners(place, grid):
    """A place that is a thousandth of a site away from a row or column of centres lies on it."""
    index, share = [], []
    for row, column in wide(place):
        down = min(max(row * grid[0] - 0.5, 0.0), grid[0] - 1.0)
        right = min(max(column * grid[1] - 0.5, 0.0), grid[1] - 1.0)
        down, right = (float(round(at)) if abs(at - round(at)) < 1 / 1024 else at for at in (down, right))
        top, left = int(down), int(right)
        bottom, beside = min(top + 1, grid[0] - 1), min(left + 1, grid[1] - 1)
        down, right = down - top, right - left
        index.append([r * grid[1] + c for r in (top, bottom) for c in (left, beside)])
        share.append([a * b for a in (1 - down, down) for b in (1 - right, right)])
    return np.array(index), np.array(share)


def mixtures(mean, between, score, index, share):
    """By the latent: a place's z is the mixture of its sites' z, and between + mean² is a second moment of z."""
    mean, between, score, share = wide(mean), wide(between), wide(score), wide(share)
    means, betweens, scores = [], [], []
    for sites, parts in zip(index, share, strict=True):
        mixed = sum(part * mean[int(site)] for site, part in zip(sites, parts, strict=True))
        second = sum(
            part * (between[int(site)] + mean[int(site)] ** 2) for site, part in zip(sites, parts, strict=True)
        )
        squares = sum(part * mean[int(site)] ** 2 for site, part in zip(sites, parts, strict=True))
        means.append(mixed)
        betweens.append(np.minimum(second - mixed**2, mixed - mixed**2))
        scores.append(
            sum(part * score[int(site)] for site, part in zip(sites, parts, strict=True)) + (squares - mixed**2).sum()
        )
    return np.array(means), np.array(betweens), np.array(scores)


def enlarge_means(mean, score, grid, size):
    places = [((r + 0.5) / size[0], (c + 0.5) / size[1]) for r in range(size[0]) for c in range(size[1])]
    index, share = corners(np.array(places), grid)
    means, _, scores = mixtures(mean, 0 * wide(mean), score, index, share)
    return means, scores


def surest_classes(mean, score, grid, size):
    means, scores = enlarge_means(mean, score, grid, size)
    labels = [max(range(len(row)), key=lambda c: row[c]) for row in means]
    values = [row[c] for row, c in zip(means, labels, strict=True)]
    return np.array(labels), np.array(values), np.array([1 - sum(row**2) for row in means]), scores


def pack_moments(mean, between):
    return np.float16(wide(mean)), np.array(
        [[round(min(max(b, 0), 0.25) * 1020) for b in row] for row in wide(between)]
    )


def unpack_moments(mean, between):
    rows = [row / sum(row) for row in wide(mean)]
    found = [
        [min(b / 1020, m - m * m) for b, m in zip(line, row, strict=True)]
        for line, row in zip(wide(between), rows, strict=True)
    ]
    return np.array(rows), np.array(found)


def class_reliability_bins(confidence, right, label, classes, bins=15):
    out = np.zeros((classes, bins, 3))
    for value, hit, number in zip(wide(confidence), wide(right), whole(label), strict=True):
        place = min(max(math.ceil(value * bins) - 1, 0), bins - 1)
        out[number, place] += (1, value, hit)
    return out


def mean_dataset_iou(counts):
    counts = wide(counts)
    values = []
    for c in range(len(counts)):
        if sum(counts[c]) > 0:
            values.append(counts[c, c] / (sum(counts[c]) + sum(counts[:, c]) - counts[c, c]))
    return sum(values) / len(values) if values else 0.0


# class shares


def share_objective(found, likelihood, known, strength, weight=None):
    """Σ_n w_n log Σ_c π_c l_nc / Σ w + strength Σ_c known_c log π_c, by loops."""
    weights = [1.0] * len(likelihood) if weight is None else wide(weight)
    total = 0.0
    for row, share in zip(wide(likelihood), weights, strict=True):
        total += share * math.log(sum(a * b for a, b in zip(found, row, strict=True)))
    prior = sum(a * math.log(b) for a, b in zip(wide(known), found, strict=True) if a > 0 and strength > 0)
    return total / sum(weights) + strength * prior


def swap_priors(probability, trained, here, power):
    rows = []
    for row in wide(probability):
        parts = [(q / a) ** power * b for q, a, b in zip(row, wide(trained), wide(here), strict=True)]
        rows.append([part / sum(parts) for part in parts])
    return np.array(rows)


# recalibration by reference labels


def nearest_labels(x, bank, label):
    found = []
    for row in wide(x):
        best = max(range(len(bank)), key=lambda m: (float(row @ wide(bank)[m]), -m))
        found.append(int(label[best]))
    return found


def confirmed_changes(before, after, reference):
    won = lost = 0
    for old, new, told in zip(before.tolist(), after.tolist(), reference.tolist(), strict=True):
        if old != new:
            won += new == told
            lost += old == told
    return won, lost


def confirmed_shares(label, reference, classes):
    pairs = list(zip(label.tolist(), reference.tolist(), strict=True))
    overall = sum(a == b for a, b in pairs) / max(len(pairs), 1)
    shares = []
    for number in range(classes):
        here = [a == b for a, b in pairs if a == number]
        shares.append(sum(here) / len(here) if here else overall)
    return shares


def kappa(counts):
    total = sum(float(value) for row in wide(counts) for value in row)
    agree = sum(float(wide(counts)[c, c]) for c in range(len(counts))) / total
    chance = 0.0
    for c in range(len(counts)):
        chance += sum(wide(counts)[c]) / total * sum(wide(counts)[:, c]) / total
    return (agree - chance) / (1 - chance)


def fit_inverse_temperature(mean, reference):
    """The best of a fine grid; one answer more is spread evenly over all sites and classes."""
    rows = wide(mean)

    def loss(power):
        total, extra = 0.0, 1 / mean.numel()
        for row, chosen in zip(rows, reference.tolist(), strict=True):
            parts = [max(value, 1e-12) ** power for value in row]
            whole = sum(parts)
            total -= math.log(parts[chosen] / whole)
            total -= sum(extra * math.log(part / whole) for part in parts)
        return total

    return min(np.geomspace(1 / 32, 8.0, 2000), key=loss)


def apply_inverse_temperature(mean, between, within, inverse_temperature):
    new = np.array([[max(value, 1e-12) ** inverse_temperature for value in row] for row in wide(mean)])
    new = new / new.sum(1, keepdims=True)
    first = np.zeros_like(new)
    for i, row in enumerate(new):
        for j, value in enumerate(row):
            total = wide(between)[i, j] + wide(within)[i, j]
            first[i, j] = value * (1 - value) * wide(between)[i, j] / max(total, 1e-12)
    return new, first, new * (1 - new) - first


def least_confidence(confidence, count, precision):
    """Every threshold tried, from the lowest."""
    pairs = list(zip(wide(confidence).tolist(), count.tolist(), strict=True))
    for threshold in sorted({value for value, n in pairs if n}):
        kept = [(value, n) for value, n in pairs if value >= threshold]
        labels = sum(n for _, n in kept)
        sure = sum(value * n for value, n in kept)
        if labels and sure >= precision * labels * (1 - 1e-12):
            return threshold, labels, labels - sure
    return None


# scores of a round


def neighbourhood_density(mean, temperature=0.05):
    rows = [row / math.sqrt(sum(value * value for value in row)) for row in wide(mean)]
    if len(rows) < 3:
        return 0.0
    total = 0.0
    for i, row in enumerate(rows):
        chance = softmax([float(row @ other) / temperature for j, other in enumerate(rows) if j != i])
        total -= sum(value * math.log(value) for value in chance if value > 0)
    return total / len(rows)


def side_loss(x, side, weight, bias, penalty=0.0):
    total = 0.0
    for row, there in zip(wide(x), wide(side), strict=True):
        chance = 1 / (1 + math.exp(-(float(row @ wide(weight)) + float(bias))))
        total -= math.log(chance if there else 1 - chance)
    return total / len(x) + penalty * sum(value * value for value in wide(weight))


def importance(logit, labelled, unlabelled):
    found = []
    for value in wide(logit):
        there = 1 / (1 + math.exp(-value))
        found.append(labelled / unlabelled * there / (1 - there))
    return np.array(found)


def embedded_risk(loss, weight, share=None):
    shares = [1.0] * len(loss) if share is None else wide(share).tolist()
    shares = [value / sum(shares) for value in shares]
    rows = list(zip(wide(loss).tolist(), wide(weight).tolist(), shares, strict=True))
    risk, middle = sum(s * w * v for v, w, s in rows), sum(s * w for _, w, s in rows)
    variance = sum(s * (w - middle) ** 2 for _, w, s in rows)
    covariance = sum(s * (w * v - risk) * (w - middle) for v, w, s in rows)
    return risk - (covariance / variance * (middle - 1) if variance > 1e-12 * middle**2 else 0.0)


def effective_weights(weight):
    values = wide(weight).tolist()
    size = sum(values) ** 2 / sum(value * value for value in values)
    return np.array([value / sum(values) * size for value in values])


def accuracy_of(label, truth, share=None):
    shares = [1.0] * len(label) if share is None else wide(share)
    right = sum(s for a, b, s in zip(whole(label), whole(truth), shares, strict=True) if a == b)
    return right / sum(shares) if len(label) else 0.0


def jitter(x, u, strength):
    """Each number of a picture in another light and contrast; each vector with noise drawn by its first number."""
    if x.ndim < 4:
        import torch

        draws = [torch.Generator().manual_seed(int(float(row[0]) * 2**53)) for row in u]
        return wide(x) + 0.1 * strength * np.stack([wide(torch.randn(x.shape[1:], generator=each)) for each in draws])
    light, contrast = (0.2 * strength * (2 * wide(u)[:, number] - 1) for number in (0, 1))
    found = np.zeros(x.shape)
    for n, picture in enumerate(wide(x)):
        centre = sum(picture.flatten()) / picture.size
        for place in itertools.product(*(range(side) for side in picture.shape)):
            span = 1.0 if x.is_floating_point() else 255.0
            value = centre + (picture[place] - centre) * math.exp(contrast[n]) + span * light[n]
            found[(n, *place)] = value if x.is_floating_point() else math.floor(min(max(value, 0), 255))
    return found


def warp(x, u, strength):
    """Each pixel of a view by hand: where it comes from, and the mean of the four pixels around that place."""
    x, u = wide(x), wide(u)
    count, channels, height, width = x.shape
    found = np.zeros_like(x)
    for n in range(count):
        turn, across_by, along_by, shear, right, down = (strength * (2 * v - 1) for v in u[n])
        cos, sin, shear = math.cos(turn * math.pi / 12), math.sin(turn * math.pi / 12), 0.3 * shear
        for i, j in itertools.product(range(height), range(width)):
            a, b = (2 * j + 1) / width - 1, (2 * i + 1) / height - 1
            across = math.exp(0.2 * across_by) * (cos * a + (shear - sin) * b) + 0.1 * right
            along = math.exp(0.2 * along_by) * (sin * a + (cos + shear * sin) * b) + 0.1 * down
            column = min(max((across + 1) * width / 2 - 0.5, 0), width - 1)
            row = min(max((along + 1) * height / 2 - 0.5, 0), height - 1)
            left, top = int(column), int(row)
            for y, part in ((top, 1 - row + top), (min(top + 1, height - 1), row - top)):
                for z, share in ((left, 1 - column + left), (min(left + 1, width - 1), column - left)):
                    for c in range(channels):
                        found[n, c, i, j] += part * share * x[n, c, y, z]
    return found


def weighted_auroc(score, positive, weight):
    """Every pair of a positive and a negative row, one after the other; a tie is half a win."""
    score, weight, won, pairs = wide(score), wide(weight), 0.0, 0.0
    for i, j in itertools.product(range(len(score)), repeat=2):
        if positive[i] and not positive[j]:
            pairs += weight[i] * weight[j]
            won += weight[i] * weight[j] * (1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0)
    return won / pairs


def match_shares(means, target, spread, prior):
    """The best step of mass from one class to another, for all pairs of classes, until none gains anything."""
    inverse, shares = np.linalg.inv(wide(spread)), wide(prior).copy()
    means, target = wide(means), wide(target)
    for _ in range(500):
        before = shares.copy()
        for a, b in itertools.permutations(range(len(shares)), 2):
            way = means[b] - means[a]
            steep = way @ inverse @ way
            gain = -(way @ inverse @ (shares @ means - target)) / steep if steep > 0 else 0.0
            moved = min(max(gain, 0.0), shares[a])
            shares[a], shares[b] = shares[a] - moved, shares[b] + moved
        if abs(shares - before).max() < 1e-9:
            break
    return shares


def find_shares(x, y, u, classes):
    """prior and shares class by class; those without a labelled row have none."""
    x, u, y = wide(x), wide(u), [int(label) for label in y]
    rows = [[row for row, label in zip(x, y, strict=True) if label == c] for c in range(classes)]
    prior = np.array([len(each) / len(x) for each in rows])
    known = [c for c in range(classes) if rows[c]]
    means = {c: sum(rows[c]) / len(rows[c]) for c in known}
    spread = np.eye(x.shape[1])
    for row, label in zip(x, y, strict=True):
        spread = spread + np.outer(row - means[label], row - means[label]) / len(x)
    shares = np.zeros(classes)
    found = match_shares(np.stack([means[c] for c in known]), sum(u) / len(u), spread, prior[known])
    shares[known] = found
    return prior, shares


def neighbour_shares(v, others, weight, positive, count=10):
    """The weights of the nearest others of each row, counted by hand."""
    found = []
    for row in wide(v):
        order = sorted(range(len(others)), key=lambda n: -float(wide(others)[n] @ row))[:count]
        total = sum(float(weight[n]) for n in order)
        found.append(sum(float(weight[n]) for n in order if positive[n]) / total)
    return np.array(found)


def balance_sides(weight, positive):
    """Each weight over the sum of its own side."""
    sides = [sum(float(w) for w, own in zip(weight, positive, strict=True) if bool(own) == side) for side in (0, 1)]
    return np.array([float(w) / sides[int(own)] for w, own in zip(weight, positive, strict=True)])


def compare_domains(v, y, columns, classes, half):
    """The auroc of the rows of each half by their neighbours in the other."""
    count = len(y)
    prior, shares = find_shares(columns[:count], y, columns[count:], classes)
    weight = np.array([max(shares[label] / prior[label], 1e-12) for label in y] + [1.0] * (len(v) - count))
    positive, found = np.arange(len(v)) >= count, []
    for number in (0, 1):
        own = [n for n in range(len(v)) if half[n] == number]
        other = [n for n in range(len(v)) if half[n] != number]
        near = balance_sides(weight[other], positive[other])
        scores = neighbour_shares(wide(v)[own], wide(v)[other], near, positive[other])
        found.append(weighted_auroc(scores, positive[own], weight[own]))
    return sum(found) / 2
