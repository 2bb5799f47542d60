//! [`CondensedTree`]: the hierarchy of clusters that a minimum spanning tree gives, and the selection of the most stable ones.
//!
//! Clusters are numbered from the root down, so that a child has a larger number than its parent. Selection is by excess of mass; the
//! root is never a cluster (Campello, Moulavi, Sander 2013; McInnes, Healy 2017).

use crate::hdbscan::lambda;

/// Edge of the spanning tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) distance: f64,
}

/// Merge of two nodes of the single-linkage hierarchy. Nodes below the number of rows are rows.
#[derive(Clone, Copy)]
struct Merge {
    left: usize,
    right: usize,
    distance: f64,
    size: usize,
}

/// Cluster of the condensed tree.
struct CondensedCluster {
    parent: Option<usize>,
    birth: f64,
    stability: f64,
    /// Largest λ at which a row or a cluster leaves it.
    death: f64,
}

/// Condensed hierarchy.
pub(crate) struct CondensedTree {
    clusters: Vec<CondensedCluster>,
    /// The cluster that each row leaves last.
    row_clusters: Vec<usize>,
}

impl CondensedTree {
    /// Condenses the hierarchy of sorted edges: a split counts where both sides have `min_size` rows.
    pub(crate) fn new(rows: usize, edges: &[TreeEdge], min_size: usize) -> Self {
        let merges = single_linkage(rows, edges);
        let root = CondensedCluster { parent: None, birth: 0.0, stability: 0.0, death: 0.0 };
        let mut tree = Self { clusters: vec![root], row_clusters: vec![0; rows] };
        let size = |node: usize| if node < rows { 1 } else { merges[node - rows].size };
        // Level by level, as the numbers of clusters go.
        let mut level = vec![(rows + merges.len() - 1, 0)];
        while !level.is_empty() {
            let mut next_level = Vec::new();
            for (node, cluster) in level {
                if node < rows {
                    continue;
                }
                let Merge { left, right, distance, .. } = merges[node - rows];
                let leaves_at = lambda(distance);
                let is_large = [size(left) >= min_size, size(right) >= min_size];
                for (child, large) in [left, right].into_iter().zip(is_large) {
                    if is_large == [true, true] {
                        tree.depart(cluster, leaves_at, size(child));
                        let parent = Some(cluster);
                        tree.clusters.push(CondensedCluster {
                            parent,
                            birth: leaves_at,
                            stability: 0.0,
                            death: 0.0,
                        });
                        next_level.push((child, tree.clusters.len() - 1));
                    } else if large {
                        next_level.push((child, cluster));
                    } else {
                        tree.depart(cluster, leaves_at, size(child));
                        tree.assign_rows(child, cluster, &merges);
                    }
                }
            }
            level = next_level;
        }
        tree
    }

    fn depart(&mut self, cluster: usize, lambda: f64, size: usize) {
        let cluster = &mut self.clusters[cluster];
        cluster.stability += (lambda - cluster.birth) * size as f64;
        cluster.death = cluster.death.max(lambda);
    }

    fn assign_rows(&mut self, node: usize, cluster: usize, merges: &[Merge]) {
        let rows = self.row_clusters.len();
        let mut pending = vec![node];
        while let Some(node) = pending.pop() {
            if node < rows {
                self.row_clusters[node] = cluster;
            } else {
                let merge = &merges[node - rows];
                pending.extend([merge.right, merge.left]);
            }
        }
    }

    /// Selects clusters. Returns the label of each row, λ at the birth of each label, and λmax of each row.
    pub(crate) fn select(&self) -> (Vec<Option<u32>>, Vec<f64>, Vec<f64>) {
        let count = self.clusters.len();
        let mut is_selected = vec![true; count];
        let mut stability: Vec<f64> = self.clusters.iter().map(|cluster| cluster.stability).collect();
        let mut of_children = vec![0.0; count];
        let mut deaths: Vec<f64> = self.clusters.iter().map(|cluster| cluster.death).collect();
        is_selected[0] = false;
        for cluster in (1..count).rev() {
            if of_children[cluster] > stability[cluster] {
                is_selected[cluster] = false;
                stability[cluster] = of_children[cluster];
            }
            if let Some(parent) = self.clusters[cluster].parent {
                of_children[parent] += stability[cluster];
                deaths[parent] = deaths[parent].max(deaths[cluster]);
            }
        }
        // The selected ancestor nearest to the root takes all below it.
        let mut labels: Vec<Option<u32>> = vec![None; count];
        let mut births = Vec::new();
        let mut max_lambdas = deaths.clone();
        for cluster in 1..count {
            let above = self.clusters[cluster].parent.filter(|parent| labels[*parent].is_some());
            if let Some(above) = above {
                labels[cluster] = labels[above];
                max_lambdas[cluster] = max_lambdas[above];
            } else if is_selected[cluster] {
                labels[cluster] = Some(births.len() as u32);
                births.push(self.clusters[cluster].birth);
            }
        }
        let row_labels = self.row_clusters.iter().map(|cluster| labels[*cluster]).collect();
        let row_lambdas = self.row_clusters.iter().map(|cluster| max_lambdas[*cluster].max(1e-300)).collect();
        (row_labels, births, row_lambdas)
    }
}

/// Merges rows along sorted edges.
fn single_linkage(rows: usize, edges: &[TreeEdge]) -> Vec<Merge> {
    let mut parents: Vec<usize> = (0..2 * rows).collect();
    let mut merges: Vec<Merge> = Vec::with_capacity(edges.len());
    for edge in edges {
        let (left, right) = (find(&mut parents, edge.from), find(&mut parents, edge.to));
        let node = rows + merges.len();
        let size = |node: usize| if node < rows { 1 } else { merges[node - rows].size };
        let size = size(left) + size(right);
        (parents[left], parents[right]) = (node, node);
        merges.push(Merge { left, right, distance: edge.distance, size });
    }
    merges
}

/// Finds the root of a node, and shortens the way there.
fn find(parents: &mut [usize], mut node: usize) -> usize {
    while parents[node] != node {
        parents[node] = parents[parents[node]];
        node = parents[node];
    }
    node
}
