/** The whole pipeline: Jenkins holds a ticket, never the training, and every stage is one command of the line. */
def call() {
    pipeline {
        agent none
        options {
            skipDefaultCheckout()
            disableRestartFromStage()
            durabilityHint('MAX_SURVIVABILITY')
            buildDiscarder(logRotator(numToKeepStr: '100'))
            timeout(time: 7, unit: 'DAYS')
        }
        parameters {
            booleanParam(name: 'AGAIN', defaultValue: false, description: 'The next attempt, even if this commit was run')
        }
        stages {
            stage('Resolve') { steps { gangResolve() } }
            stage('Build') { steps { gangFollow('build') } }
            stage('Plan') { steps { gangFollow('plan') } }
            stage('Submit') { steps { gangFollow('submit') } }
            stage('Train') { steps { gangFollow('train') } }
            stage('Evaluate') { steps { gangFollow('evaluate') } }
            stage('Gate') { steps { gangFollow('gate') } }
            stage('Prove') { steps { gangFollow('prove') } }
            stage('Publish') { steps { gangFollow('publish') } }
            stage('Report') { steps { gangFollow('report') } }
        }
        post {
            aborted { gangCancel() }
            cleanup { gangReport() }
        }
    }
}
