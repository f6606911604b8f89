import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;

/** A NameNode and a DataNode of a real HDFS in FOLDER; lines of its input stop and start the DataNode. */
public class Hdfs {
    public static void main(String[] words) throws Exception {
        Configuration conf = new Configuration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, words[0]);
        conf.setInt("dfs.heartbeat.interval", 1);
        conf.setInt("dfs.namenode.heartbeat.recheck-interval", 500);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("ready " + cluster.getNameNode().getHttpAddress().getPort() + " " + dataPort(cluster));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        DataNodeProperties stopped = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("stop")) {
                stopped = cluster.stopDataNode(0);
                System.out.println("stopped");
            } else if (line.equals("start")) {
                cluster.restartDataNode(stopped, true);
                cluster.waitActive();
                System.out.println("started " + dataPort(cluster));
            }
        }
        cluster.shutdown(true);
        System.exit(0);
    }

    private static int dataPort(MiniDFSCluster cluster) {
        return cluster.getDataNodes().get(0).getInfoPort();
    }
}
